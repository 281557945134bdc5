"""Pure builders of topologies: from a membership to a forest."""
