-- DROP removes entries.
redis.call('DEL', unpack(KEYS))
return '1'
