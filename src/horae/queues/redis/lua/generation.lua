-- What changes when tickets may have been lost: by FLUSHALL, by a restart, which may have read an old dump, and when another
-- server took over. ARGV: 3 a random value.
redis.call('SET', P .. ':generation', ARGV[3], 'NX')
return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. ' ' .. redis.call('GET', P .. ':generation')
