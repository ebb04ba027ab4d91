-- Take tickets: one round trip, at a cost by what is taken and by the lanes that are due, however much waits behind them.
-- ARGV: 3 until, 4 limit, 5 when they come back if they are neither done nor given back, 6 the kind of the taker, 7 its name,
-- 8 until when it waits for more (0: not at all), and as JSON 9 the wanted queues (empty: any), 10 queues to leave, 11 known tasks.
--
-- Priorities come first. Within one the owners take turns, and within an owner its lanes, so that a flood of one owner gets no
-- more than what the others leave; the one that has waited longest is first. Returns when to look again: the time of the next
-- ticket and the time when the next one comes back; and then for each lane its line, its owner, and its tickets as text.
local LANES, BACK = 200, 1000 -- of a line that one take looks into; tickets that come back at once
local until_, limit, hidden_until, kind = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]

local function set(list)
  local members = {}
  for _, member in ipairs(list) do
    members[member] = true
  end
  return members
end

local queues = cjson.decode(ARGV[9])
local any, wanted, without, tasks = #queues == 0, set(queues), set(cjson.decode(ARGV[10])), set(cjson.decode(ARGV[11]))

local function wants(line)
  local queue, task = string.match(line, '^-?%d+/([^/]*)/(.*)$')
  return (any or wanted[queue]) and not without[queue] and tasks[task]
end

-- Tickets whose taker has vanished come back; one that was offered again meanwhile keeps its new time.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', P .. ':taken', '-inf', NOW, 'LIMIT', 0, BACK)) do
  local id, at, size, rest = string.match(member, '^(%S+) (%S+) (%d+) (.*)$')
  local line, owner = string.sub(rest, 1, size), string.sub(rest, size + 1)
  redis.call('ZADD', lane_key(line, owner), 'NX', at, id)
  open_lane(line, owner, at)
  redis.call('ZREM', P .. ':taken', member)
end

local reply, touched, got = { '', '' }, {}, 0

-- Take up to `count` tickets of one lane, and hide them.
local function draw_lane(lane, count)
  local key = lane_key(lane.line, lane.owner)
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', until_, 'WITHSCORES', 'LIMIT', 0, count)
  local tickets, hidden, tail = {}, {}, ' ' .. #lane.line .. ' ' .. lane.line .. lane.owner
  for n = 1, #found, 2 do
    local ticket = found[n] .. ' ' .. whole(found[n + 1])
    tickets[#tickets + 1] = ticket
    hidden[n], hidden[n + 1] = hidden_until, ticket .. tail
  end
  if #tickets > 0 then
    redis.call('ZREMRANGEBYRANK', key, 0, #tickets - 1)
    redis.call('ZADD', P .. ':taken', unpack(hidden))
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = lane.line, lane.owner, table.concat(tickets, ' ')
  end
  touched[lane] = true
  return #tickets
end

-- Take up to `count` tickets of an owner, from each of its lanes in turn.
local function draw(owner, count)
  local left = count
  while left > 0 and #owner.lanes > 0 do
    local each, more = math.ceil(left / #owner.lanes), {}
    for _, lane in ipairs(owner.lanes) do
      local part = math.min(each, left)
      local drawn = part > 0 and draw_lane(lane, part) or 0
      left = left - drawn
      if drawn == part then
        more[#more + 1] = lane
      end
    end
    owner.lanes = more
  end
  return count - left
end

-- The owners with something due in some lines of one priority, whoever has waited longest first.
local function owners_of(lines)
  local lanes, owners, known = {}, {}, {}
  for _, line in ipairs(lines) do
    local due = redis.call('ZRANGEBYSCORE', line_key(line), '-inf', until_, 'WITHSCORES', 'LIMIT', 0, LANES)
    for n = 1, #due, 2 do
      lanes[#lanes + 1] = { line = line, owner = due[n], turn = tonumber(due[n + 1]) }
    end
  end
  table.sort(lanes, function(a, b)
    return a.turn < b.turn
  end)
  for _, lane in ipairs(lanes) do
    local owner = known[lane.owner]
    if owner == nil then
      owner = { lanes = {} }
      known[lane.owner] = owner
      owners[#owners + 1] = owner
    end
    owner.lanes[#owner.lanes + 1] = lane
  end
  return owners
end

local lines, i = redis.call('ZRANGE', P .. ':lines', 0, -1, 'WITHSCORES'), 1
while i <= #lines and got < limit do
  local rank, alike = lines[i + 1], {}
  while lines[i + 1] == rank and i <= #lines do
    if wants(lines[i]) then
      alike[#alike + 1] = lines[i]
    end
    i = i + 2
  end
  local hungry = owners_of(alike)
  while got < limit and #hungry > 0 do
    local each, more = math.max(1, math.floor((limit - got) / #hungry)), {}
    for _, owner in ipairs(hungry) do
      local part = math.min(each, limit - got)
      local drawn = part > 0 and draw(owner, part) or 0
      got = got + drawn
      if drawn == part and #owner.lanes > 0 then
        more[#more + 1] = owner
      end
    end
    hungry = more
  end
end

-- A lane that gave something comes behind the others that are due, and one without tickets goes.
for lane in pairs(touched) do
  local first = redis.call('ZRANGE', lane_key(lane.line, lane.owner), 0, 0, 'WITHSCORES')
  if #first > 0 then
    redis.call('ZADD', line_key(lane.line), whole(math.max(tonumber(first[2]), tonumber(NOW))), lane.owner)
  else
    redis.call('ZREM', line_key(lane.line), lane.owner)
    if redis.call('EXISTS', line_key(lane.line)) == 0 then
      redis.call('ZREM', P .. ':lines', lane.line)
    end
  end
end

if got == limit then
  wake(kind, 1) -- there may be more than this taker can use
elseif got == 0 then
  local next_at
  for n = 1, #lines, 2 do
    if wants(lines[n]) then
      local first = redis.call('ZRANGE', line_key(lines[n]), 0, 0, 'WITHSCORES')
      if #first > 0 and (next_at == nil or tonumber(first[2]) < next_at) then
        next_at = tonumber(first[2])
      end
    end
  end
  local back = redis.call('ZRANGE', P .. ':taken', 0, 0, 'WITHSCORES')
  reply[1], reply[2] = next_at and whole(next_at) or '', back[2] and whole(back[2]) or ''
  if ARGV[8] ~= '0' then
    redis.call('ZADD', P .. ':waiting:' .. kind, ARGV[8], ARGV[7])
    redis.call('EXPIRE', P .. ':waiting:' .. kind, 120) -- kinds change with each deployment
    redis.call('ZADD', P .. ':kinds', NOW, kind)
  end
end
return reply
