"""Close along the tree (GS88 §5.1): not yet."""

from typing import TYPE_CHECKING, Any

from ordercast.names import ClassId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.messages import Decision
    from ordercast.epochs.participant import Participant


class Handover:
    def __init__(self, site: "Participant") -> None:
        self.site = site
        self.draining: set[ClassId] = set()
        self.compared: set[ClassId] = set()

    def possible(self, class_id: ClassId, suspected: set[SiteId]) -> bool:
        return False

    def look(self, class_id: ClassId) -> None: ...
    def stop(self, class_id: ClassId) -> None: ...
    def begin(self, decision: "Decision") -> None: ...
    def finish(self, class_id: ClassId) -> None: ...
    def take(self, sender: SiteId, message: Any) -> None: ...
    def tick(self) -> None: ...
    @property
    def idle(self) -> bool:
        return True
