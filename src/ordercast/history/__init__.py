"""What a site must not forget: the inputs of its machine, in order, and now and then the machine itself."""
