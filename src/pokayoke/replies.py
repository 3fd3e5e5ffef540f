"""Read a model's reply and answer its calls, for hosts with a client of their own.

In: a reply of OpenAI or Anthropic, as a dict or an SDK object; or a history.
Out: text, native calls and calls in the text, the stop reason; the messages to append to the history.
Never: change the text of an argument. A call in the text runs only by its form and place, never by the words around it.
"""

from pokayoke.core.messages.answers import result_message, result_messages
from pokayoke.core.messages.replies import Reply, pending_calls, read_reply, texts_read

__all__ = ["Reply", "pending_calls", "read_reply", "result_message", "result_messages", "texts_read"]
