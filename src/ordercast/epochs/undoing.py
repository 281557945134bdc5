"""Deliveries that the others never made are undone (GS88 §5.2.1; errata 22, 117)."""

from ordercast.epochs import events as e
from ordercast.epochs.recovery import Key, key_of
from ordercast.epochs.states import States
from ordercast.epochs.track import Entry, Recent
from ordercast.names import ClassId


class Undoing(States):
    """What a site takes back that was cut off."""

    def _roll_back(self, entries: list[Entry]) -> None:
        """Undo deliveries that the others never made; what came after them in other classes is delivered again."""
        site = self.site
        if not entries:
            return
        gone = {(entry.class_id, key_of(entry.id)) for entry in entries}
        for entry in reversed(entries):
            site.tracks[entry.class_id].undo(entry)
            for group in entry.envelope.groups:
                kept = list(site.history.get(group, ()))
                if any(known is entry for _, known in kept):
                    at = next(index for index, (_, known) in enumerate(kept) if known is entry)
                    later = [(index - 1, known) for index, known in kept[at + 1 :]]
                    site.history[group] = Recent([*kept[:at], *later])
                    site.counts[group] -= 1
        handed = [i for i, entry in enumerate(site.handed) if (entry.class_id, key_of(entry.id)) in gone]
        if handed:
            undone, site.handed = site.handed[handed[0] :], site.handed[: handed[0]]
            site.out.append(e.RolledBack(len(undone)))
            for entry in undone:
                if (entry.class_id, key_of(entry.id)) not in gone:
                    site.hand(entry)

    def _with_later(self, entries: list[Entry]) -> list[Entry]:
        """Return these with whatever came after one of them in one of its groups (errata 117).

        This site is given again what it lacks of a group, counted from what it has: that must be a beginning of what
        others have. Where something later cannot be undone, because everybody has it, it asks for the whole state.
        """
        site = self.site
        gone = {(entry.class_id, key_of(entry.id)) for entry in entries}
        undoable = {
            (c, key_of(entry.id)) for c, t in site.tracks.items() for entry in t.entries if not t.is_stable(entry)
        }
        while True:
            later = set[tuple[ClassId, Key]]()
            for group, kept in site.history.items():
                names = [(entry.class_id, key_of(entry.id)) for _, entry in kept]
                first = next((index for index, name in enumerate(names) if name in gone), len(names))
                after = {name for name in names[first:] if name not in gone}
                later |= after & undoable
                if after - undoable:
                    self.torn.add(group)
            if not later:
                break
            gone |= later
        tracks = sorted(site.tracks.items())
        return [entry for c, track in tracks for entry in track.entries if (c, key_of(entry.id)) in gone]
