"""A step on a name whose keys are on two nodes, because its slot is moved key by key.

While a slot moves in the old way (SETSLOT and MIGRATE), its nodes answer TRYAGAIN to a command that names several
keys of which some are not there; and two of the three keys of a name are there only while somebody waits.  A command
that names one key is performed.  So a step that was refused is asked for once more with the key of the line alone,
with a check before it that nothing else of the name is needed, or that all of it has arrived.

Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#ask-redirection
"""

from enum import Enum

from interlock._redis.message import Message
from interlock._redis.resp import pack
from interlock._redis.scripts import BY_SHA, ENTER, RENEW

ALL_HERE = b"""
local named = {}
for i = 1, #KEYS do
  named[3 * i - 2], named[3 * i - 1], named[3 * i] = KEYS[i], KEYS[i] .. ':order', KEYS[i] .. ':waiters'
end
local KEYS = named
"""
"""Before a script, when all that there is of the name is on the node that is asked."""

LINE_ONLY = (
    ALL_HERE
    + b"""
local server, given = redis, ARGV
local refusal = server.error_reply('TRYAGAIN the keys of this name are on two nodes')
local ARGV = {unpack(given)}
if enters and given[5] == 'w' then ARGV[5] = 'o' end  -- it can't stand in line
local sole, quick = unpack(server.call('HMGET', KEYS[1], 'sole', 'quick'))
if quick and not unwaited then  -- perhaps somebody waits: only the lease of a sole holder may go on
  if not renews or not sole or #ARGV > 2 then return refusal end
  local holder, ends = string.match(sole, '^(%S+) (%d+) ')
  local clock = server.call('TIME')
  if holder ~= ARGV[1] or tonumber(ends) < clock[1] * 1000 + clock[2] / 1000 + 50 then return refusal end
end
local empty = {ZPOPMIN = 'list', HGETALL = 'list', ZRANGE = 'list'}
empty.HGET, empty.ZRANK, empty.ZREM, empty.HDEL, empty.PEXPIREAT = false, false, 0, 0, 0
local redis = {error_reply = server.error_reply, pcall = server.pcall, call = function(...)
  local command, key = ...
  if key ~= KEYS[2] and key ~= KEYS[3] then return server.call(...) end
  local reply = empty[command]
  if reply == nil then error('TRYAGAIN ' .. command) end
  if reply == 'list' then return {} end
  return reply
end}
local function step()
"""
)
"""Before a script, when the node that is asked has the line, and another one may have the waiters."""

END_OF_STEP = b"""
end
local answer = step()
if answer == 0 and given[5] ~= ARGV[5] then return refusal end
return answer
"""


class Here(Enum):
    """What is known of where the keys of a name are."""

    LINE = "the line, and perhaps another node has the waiters"
    LINE_UNWAITED = "the line, and nobody waits"
    ALL = "all that there is"


def with_line_alone(message: Message, here: Here) -> Message | None:
    """Return a step that names the key of the line alone.

    Args:
        message: the call of a script, by its sha.
        here: what the node has that will be asked.

    Returns:
        The step; None if the message calls no script on one line.
    """
    words = _words_of(message.command)
    script = BY_SHA.get(words[1]) if len(words) > 3 and words[0] == b"EVALSHA" else None
    if script is None:
        return None
    count = int(words[2])
    lines, arguments = words[3 : 3 + count : 3], words[3 + count :]
    if any(line != message.line.encode() for line in lines):
        return None
    facts = (script is RENEW, script is ENTER, here is Here.LINE_UNWAITED)
    known = b"local renews, enters, unwaited = %s, %s, %s" % tuple(str(fact).lower().encode() for fact in facts)
    text = ALL_HERE + script.text if here is Here.ALL else known + LINE_ONLY + script.text + END_OF_STEP
    return message._replace(command=pack(b"EVAL", text, str(len(lines)), *lines, *arguments))


def _words_of(command: bytes) -> list[bytes]:
    """Return the words of a packed command."""
    words, at = [], command.index(b"\r\n") + 2
    while at < len(command):
        end = command.index(b"\r\n", at)
        size = int(command[at + 1 : end])
        words.append(command[end + 2 : end + 2 + size])
        at = end + 4 + size
    return words


def exist(message: Message, *keys: str) -> Message:
    """Return the question which of some keys of the message's name a node has."""
    return Message(pack("EXISTS", *keys), message.line, io_timeout=message.io_timeout)
