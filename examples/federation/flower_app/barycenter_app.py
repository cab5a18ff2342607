"""
Rounds of a barycenter on Flower
================================

Each SuperNode has the rows of one group, and ``rows=`` in its node configuration names the file.
The rounds are those of :func:`skdpot.published.barycenter_rounds`. **They are not private:**
answers disclose rows. For private data use :mod:`skdpot.parts`, which needs no rounds.

Start it with ``flwr run examples/federation/flower_app`` on a SuperLink with three SuperNodes.
"""

import time

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from skdpot.published import BarycenterOwner, barycenter_rounds

RECORD, FIELD = "skdpot", "message"

client_app = ClientApp()
server_app = ServerApp()


def to_record(data: bytes) -> RecordDict:
    """Return a record that holds bytes."""
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    return RecordDict({RECORD: ArrayRecord({FIELD: array})})


def bytes_of(content: RecordDict) -> bytes:
    """Return the bytes of a record."""
    return bytes(content[RECORD][FIELD].data)


@client_app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one step. Each message may find a new process, so Flower keeps the owner's state."""
    owner = BarycenterOwner(np.load(str(context.node_config["rows"])))
    if RECORD in context.state:
        owner.restore(bytes_of(context.state))
    said = owner.answer(bytes_of(message.content))
    context.state[RECORD] = to_record(owner.put_away())[RECORD]
    return Message(to_record(said), reply_to=message)


@server_app.main()
def coordinate(grid: Grid, context: Context) -> None:
    """Wait for the owners, run the rounds, and write the barycenter to a file."""
    config = context.run_config
    n_owners = int(config["n-owners"])
    while len(nodes := sorted(grid.get_node_ids())) < n_owners:
        time.sleep(0.5)

    def ask(messages):
        sent = [
            Message(to_record(data), dst_node_id=node, message_type="query")
            for node, data in zip(nodes[:n_owners], messages, strict=True)
        ]
        replies = {reply.metadata.src_node_id: reply for reply in grid.send_and_receive(sent)}
        return [bytes_of(replies[node].content) for node in nodes[:n_owners]]

    found = barycenter_rounds(
        ask,
        n_owners,
        int(config["n-support"]),
        n_features=int(config["n-features"]),
        method="free",
        max_iter=int(config["max-iter"]),
    )
    np.savez(str(config["output"]), support=found.support, objective=found.objective)
    print(f"skdpot: {found.n_rounds} rounds, objective {found.objective:.6f}", flush=True)
