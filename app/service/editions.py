"""Which edition of an environment's data an epoch of a run is dealt from: the one that it began with."""

from pydantic import BaseModel

from app.domain.runs import Stream
from app.service.catalogue import Catalogue, Hosted

REMEMBERED_EPOCHS = 20_000


class Editions:
    """Kept in memory, as former editions themselves are: after a restart every epoch goes on with what is there."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._begun: dict[tuple[str, str, int], str] = {}

    def of(self, present: Hosted, stream: Stream, params: BaseModel, epoch: int) -> Hosted:
        """The present one for a look, for an epoch that begins now, and when there are more or fewer tasks than
        before, since places in an epoch then mean other tasks."""
        if not stream.run:
            return present
        place = (stream.run, stream.digest, epoch)
        begun = self._begun.get(place)
        if begun is None:
            if len(self._begun) >= REMEMBERED_EPOCHS:
                del self._begun[next(iter(self._begun))]
            self._begun[place] = present.data_digest
            return present
        if begun == present.data_digest:
            return present
        former = self._catalogue.hosted(present.name, begun)
        sizes = {hosted.environment.size(stream.split, params) for hosted in (former, present)}
        return former if len(sizes) == 1 else present
