"""Flower's grid without a network: what a ServerApp pushes is handed to ClientApps at once.

Messages, and what SuperNodes remember, are turned into bytes and back as Flower does it on a wire,
and every message may find the app anew. Nodes can be silent, repeat themselves, fail and be started
again, and their answers can be lost.
"""

import os

# Before Flower is imported: it calls home, and keeps files at home.
os.environ.update(
    FLWR_TELEMETRY_ENABLED="0",
    FLWR_DISABLE_UPDATE_CHECK="1",
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION="1",
)
os.environ.setdefault("FLWR_HOME", os.path.join(os.path.sep, "nonexistent", "flwr"))

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.common.serde import context_from_proto, context_to_proto
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

RUN = 1


def over_the_wire(message):
    """Return what arrives of a message: everything is in its bytes."""
    contents = {name: item.deflate() for name, item in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, contents)
    arrived.metadata.__dict__["_message_id"] = message.object_id
    return arrived


class DirectGrid(Grid):
    """SuperNodes as contexts, of which each message is answered when it is pushed.

    Parameters
    ----------
    make_app : callable
        Returns the ClientApp, once for every message.
    nodes : dict of int to dict
        Configurations of SuperNodes.
    """

    def __init__(self, make_app, nodes):
        self.make_app = make_app
        self.contexts = {}
        self.silent, self.failing, self.losing, self.repeating = set(), set(), set(), set()
        # Kind of every message that was delivered, by node.
        self.delivered = []
        # Texts of all errors and bytes of all answers that went to the server.
        self.answers = []
        self._ready, self._asked = {}, set()
        self._tiring = None
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = RUN, SUPERLINK_NODE_ID, 0
        for node, config in nodes.items():
            self.start(node, config)

    def start(self, node, config):
        """Start a SuperNode, which remembers nothing."""
        self.contexts[node] = Context(
            run_id=RUN, node_id=node, node_config=dict(config), state=RecordDict(), run_config={}
        )

    def restart(self, node, new):
        """Stop a SuperNode, and start it as another one."""
        self.start(new, self.contexts.pop(node).node_config)

    def silence_after(self, n_messages, node):
        """Silence a SuperNode once more than so many messages were delivered to all."""
        self._tiring = n_messages, node

    def set_run(self, run):
        """Do nothing: there is one run."""

    @property
    def run(self):
        """Return the number of the run."""
        return RUN

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        """Return a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        """Return all SuperNodes that are up."""
        return list(self.contexts)

    def push_messages(self, messages):
        """Deliver messages, and return their names."""
        if self._tiring is not None and len(self.delivered) > self._tiring[0]:
            self.silent.add(self._tiring[1])
        return [self._push(message) for message in messages]

    def pull_messages(self, message_ids):
        """Return the answers that are there."""
        found = [self._ready[name] for name in message_ids if name in self._ready]
        for answer in found:
            if answer.metadata.src_node_id not in self.repeating:
                del self._ready[answer.metadata.reply_to_message_id]
        return found + [a for a in found if a.metadata.src_node_id in self.repeating]

    def send_and_receive(self, messages, *, timeout=None):
        """Return the answers that are there at once."""
        return self.pull_messages(self.push_messages(messages))

    def _push(self, message):
        message.metadata.__dict__["_message_id"] = name = message.object_id
        node = message.metadata.dst_node_id
        if node in self.silent:
            return name
        if node in self.failing or node not in self.contexts:
            answer = Message(
                Error(ErrorCode.NODE_UNAVAILABLE, "made by the SuperLink"), reply_to=message
            )
            answer.metadata.__dict__["_src_node_id"] = SUPERLINK_NODE_ID
        else:
            answer = self._answer(over_the_wire(message), node)
        answer.metadata.__dict__["_message_id"] = answer.object_id
        asked = node, _data_of(message)
        if node not in self.losing or asked in self._asked:
            self._ready[name] = over_the_wire(answer)
        # What is lost is the first answer to a request.
        self._asked.add(asked)
        return name

    def _answer(self, message, node):
        """Return what a SuperNode sends back: what run_clientapp of Flower does."""
        self.delivered.append((node, message.metadata.message_type))
        context = context_from_proto(context_to_proto(self.contexts[node]))
        try:
            answer = self.make_app()(message, context)
            self.contexts[node] = context_from_proto(context_to_proto(context))
        except Exception as error:
            text = f"{type(error)}:<'{error}'>"
            answer = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, text), reply_to=message)
        self.answers.append(answer.error.reason if answer.has_error() else _data_of(answer))
        return answer


def _data_of(message):
    return b"".join(
        array.data for record in message.content.array_records.values() for array in record.values()
    )
