"""A network on which anything may happen to messages, as a seed says."""

from skdpot.federation._wire import unpack


class Crash(Exception):
    """The coordinator's process ended."""


def arriving(under_way, new, now, rng):
    """Take out the messages that arrive now, in any order."""
    under_way += new
    due = [one for one in under_way if one[0] <= now]
    under_way[:] = [one for one in under_way if one[0] > now]
    return [due[i][1:] for i in rng.permutation(len(due))]


class FaultyCarrier:
    """Owners on a bad network, whose processes end and begin again.

    Parameters
    ----------
    make_owner : callable
        Returns a new owner of a name, as a process makes it that begins.
    names : sequence of str
        The owners' names.
    rng : numpy.random.Generator
        What happens.
    rate : float
        Probability of each fault, for each message.
    strays : sequence of bytes
        Messages of sessions that nobody goes on with.
    most_exchanges : int
        More are a failure: the coordinator goes round in circles.
    """

    def __init__(self, make_owner, names, rng, rate, strays=(), most_exchanges=2000):
        self._make_owner, self._rng, self._rate = make_owner, rng, rate
        self.owners = {name: make_owner(name) for name in names}
        self.gone, self.healed = set(), False
        self._strays, self._past = list(strays), {name: [] for name in names}
        # (number of the exchange, who, what) of messages that are under way.
        self._to_owners, self._to_coordinator = [], []
        self._n_left, self._now = most_exchanges, 0
        self.answered = {name: set() for name in names}

    def exchange(self, messages, timeout=None):
        """Return what arrives, of this exchange and of former ones."""
        self._now += 1
        assert self._now < self._n_left, "there is no end to this"
        if self._happens(0.3):
            raise Crash
        sent = [one for name, data in messages.items() for one in self._fate(name, data)]
        for name, data in messages.items():
            self._past[name].append(data)
        for name, past in self._past.items():
            if self._happens() and past:
                sent.append((self._now, name, past[self._rng.integers(len(past))]))
            if self._happens() and self._strays:
                sent.append((self._now, name, self._strays[self._rng.integers(len(self._strays))]))
        for name, data in arriving(self._to_owners, sent, self._now, self._rng):
            self._restart(name)
            if name not in self.gone:
                reply = self.owners[name].handle(data)
                self._note(name, reply)
                self._to_coordinator += self._fate(name, reply)
        return arriving(self._to_coordinator, [], self._now, self._rng)

    def heal(self):
        """Let nothing happen any more but that late messages arrive."""
        self.healed = True

    def _happens(self, times=1.0):
        return not self.healed and self._rng.random() < times * self._rate

    def _fate(self, name, data):
        """Return when a message arrives, how often, and what is left of it."""
        if self._happens(2):
            return []
        copies = 2 if self._happens() else 1
        return [(self._now + self._delay(), name, self._damaged(data)) for _ in range(copies)]

    def _delay(self):
        return int(self._rng.choice([1, 2, 5, 40])) if self._happens() else 0

    def _damaged(self, data):
        if self._happens():
            return data[: self._rng.integers(len(data))]
        if self._happens():
            damaged = bytearray(data)
            damaged[self._rng.integers(len(data))] ^= 1 << self._rng.integers(8)
            return bytes(damaged)
        return data

    def _restart(self, name):
        """Let an owner's process end, and go on from what it remembered."""
        if self._happens():
            state = self.owners[name].state()
            self.owners[name] = self._make_owner(name)
            self.owners[name].restore(state)

    def _note(self, name, reply):
        packet = unpack(reply)
        if packet.kind in ("answer", "masked"):
            self.answered[name].add(packet.session)
