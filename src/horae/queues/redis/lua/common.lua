-- What all scripts begin with. A ticket is a run id in a sorted set by its time (microseconds since 1970):
--
--   P:lines                  lines that have tickets, by priority, the highest first; a line is `priority/queue/task`
--   P:line:LINE              the owners with tickets in a line, by when it is their turn
--   P:lane:LINE\nOWNER       the tickets of an owner in a line, by when they wake
--   P:taken                  tickets that somebody has taken, by when they come back
--   P:kinds                  the kinds of takers (by the queues and tasks that they want), by when one last waited
--   P:waiting:KIND           the takers of a kind that wait, by how long they do
--   P:generation             a random value; gone when the server has lost its memory
--
-- P is the prefix with its hash tag, so in a cluster all of them are in one slot. Times come from the caller, who follows
-- the clock of the store. A line or an owner without tickets is removed by the take that finds it empty.
local P, NOW = ARGV[1], ARGV[2]
local WAKES = 64 -- tickets for which one more waiting taker is woken
local DEAF = 16 -- takers that hear nothing before no other is tried

local function whole(number)
  return string.format('%.0f', tonumber(number)) -- large numbers may come as 1.7e+15
end

local function line_key(line)
  return P .. ':line:' .. line
end

local function lane_key(line, owner)
  return P .. ':lane:' .. line .. '\n' .. owner
end

-- Let a line know that an owner has a ticket that wakes at a time.
local function open_lane(line, owner, at)
  redis.call('ZADD', line_key(line), 'LT', at, owner)
  redis.call('ZADD', P .. ':lines', -tonumber(string.match(line, '^-?%d+')), line)
end

-- Wake as many takers of a kind as some tickets are worth, whoever has waited longest. One that has died hears nothing, so
-- another one is woken; in a cluster it may only hear it from another server.
local function wake(kind, tickets)
  local waiting, count, deaf = P .. ':waiting:' .. kind, math.ceil(tickets / WAKES), DEAF
  redis.call('ZREMRANGEBYSCORE', waiting, '-inf', '(' .. NOW)
  while count > 0 and deaf > 0 do
    local taker = redis.call('ZPOPMIN', waiting)[1]
    if not taker then
      return
    end
    if redis.call('PUBLISH', P .. ':wake:' .. taker, '') > 0 then
      count = count - 1
    else
      deaf = deaf - 1
    end
  end
end

local function wake_all_kinds(tickets)
  redis.call('ZREMRANGEBYSCORE', P .. ':kinds', '-inf', whole(NOW - 60000000))
  for _, kind in ipairs(redis.call('ZRANGE', P .. ':kinds', 0, -1)) do
    wake(kind, tickets)
  end
end
