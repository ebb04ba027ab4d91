-- Hold tickets. ARGV: 3 a time: for tickets that wake by then a waiting taker is woken; and then for each lane its line, its
-- owner, the number of its tickets, and for each of them its time and the run id. A ticket that is there already gets the
-- new time.
local soon, due, i = tonumber(ARGV[3]), 0, 4
while i < #ARGV do
  local line, owner, count = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local first = ARGV[i + 3]
  for n = i + 3, i + 2 + 2 * count, 2 do
    local at = tonumber(ARGV[n])
    if at < tonumber(first) then
      first = ARGV[n]
    end
    if at <= soon then
      due = due + 1
    end
  end
  redis.call('ZADD', lane_key(line, owner), unpack(ARGV, i + 3, i + 2 + 2 * count))
  open_lane(line, owner, first)
  i = i + 3 + 2 * count
end
if due > 0 then
  wake_all_kinds(due)
end
