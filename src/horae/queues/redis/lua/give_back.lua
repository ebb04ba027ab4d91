-- Let others take tickets from a time on. ARGV: 3 the time, 4… the tickets as they are in P:taken. Those that are not there any
-- more have come back by themselves.
local found = 0
for n = 4, #ARGV do
  if redis.call('ZSCORE', P .. ':taken', ARGV[n]) then
    redis.call('ZADD', P .. ':taken', ARGV[3], ARGV[n])
    found = found + 1
  end
end
if found > 0 and tonumber(ARGV[3]) <= tonumber(NOW) then
  wake_all_kinds(found)
end
