-- Count the tickets, about: of a line with many owners some are counted, and stand for the others.
local OWNERS = 50
local count = redis.call('ZCARD', P .. ':taken')
for _, line in ipairs(redis.call('ZRANGE', P .. ':lines', 0, -1)) do
  local owners, seen = redis.call('ZRANGE', line_key(line), 0, OWNERS - 1), 0
  for _, owner in ipairs(owners) do
    seen = seen + redis.call('ZCARD', lane_key(line, owner))
  end
  if #owners > 0 then
    count = count + math.floor(seen * redis.call('ZCARD', line_key(line)) / #owners)
  end
end
return count
