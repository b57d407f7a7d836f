//! The rules in Lua: one script per step, over one hash per key. So every step is atomic, and everything
//! about a key, its fence included, is in one slot of a cluster.
//!
//! Fields: `s` state (0 in progress, 1 completed, 2 released), `t` token, `f` fence, `p` fingerprint or
//! empty, `o` operation, `b` start of the operation, `l` end of the lease, `c` time of completion, `e`
//! expiry, `r` result. Times are by the clock of Redis. Numbers are formatted by hand, because Lua
//! writes large ones with 14 digits only.

use redis::Script;

const PRELUDE: &str = "
    local time = redis.call('TIME')
    local micros = time[1] * 1000000 + time[2]
    local now = math.floor(micros / 1000)
    local function text(number) return string.format('%.0f', number) end
";

// KEYS: the hash. ARGV: lease, ttl, fingerprint, token, operation.
const CLAIM: &str = "
    local state, fence, fingerprint, operation, began, lease_until, expires_at, completed_at, result =
        unpack(redis.call('HMGET', KEYS[1], 's', 'f', 'p', 'o', 'b', 'l', 'e', 'c', 'r'))
    local resumed = 0
    if state and state ~= '2' and tonumber(expires_at) > now then
        if fingerprint ~= '' and ARGV[3] ~= '' and fingerprint ~= ARGV[3] then return {'other'} end
        if state == '1' then
            return {'completed', tonumber(fence), operation, tonumber(began), tonumber(completed_at),
                    tonumber(expires_at) - now, result}
        end
        local retry_after = tonumber(lease_until) - now
        if retry_after > 0 then return {'in_progress', retry_after} end
        resumed = 1
        if fingerprint == '' then fingerprint = ARGV[3] end
    else
        fingerprint, operation, began = ARGV[3], ARGV[5], text(now)
    end
    local next_fence = math.max(micros, (tonumber(fence or '0')) + 1)
    local expiry = text(now + tonumber(ARGV[2]))
    redis.call('HSET', KEYS[1], 's', '0', 't', ARGV[4], 'f', text(next_fence), 'p', fingerprint,
               'o', operation, 'b', began, 'l', text(now + tonumber(ARGV[1])), 'e', expiry)
    redis.call('HDEL', KEYS[1], 'c', 'r')
    redis.call('PEXPIREAT', KEYS[1], expiry)
    return {'claimed', next_fence, operation, tonumber(began), resumed}
";

const HELD: &str = "
    local state, token, expires_at = unpack(redis.call('HMGET', KEYS[1], 's', 't', 'e'))
    local is_own = state and token == ARGV[1] and tonumber(expires_at) > now
    local is_held = is_own and state == '0'
";

// ARGV: token, lease.
const EXTEND: &str = "
    if not is_held then return 0 end
    local lease_until = now + tonumber(ARGV[2])
    local expiry = text(math.max(tonumber(expires_at), lease_until))
    redis.call('HSET', KEYS[1], 'l', text(lease_until), 'e', expiry)
    redis.call('PEXPIREAT', KEYS[1], expiry)
    return 1
";

// ARGV: token, result, ttl. Completing again with the same token changes nothing.
const COMPLETE: &str = "
    if is_own and state == '1' then return 1 end
    if not is_held then return 0 end
    local expiry = text(now + tonumber(ARGV[3]))
    redis.call('HSET', KEYS[1], 's', '1', 'c', text(now), 'r', ARGV[2], 'e', expiry)
    redis.call('HDEL', KEYS[1], 'l')
    redis.call('PEXPIREAT', KEYS[1], expiry)
    return 1
";

// ARGV: token. The rest of the hash keeps the fence.
const RELEASE: &str = "
    if not is_held then return 0 end
    redis.call('HSET', KEYS[1], 's', '2')
    redis.call('HDEL', KEYS[1], 'l', 'p', 't')
    return 1
";

/// The scripts of a lock, called by their hash and loaded where a server does not know them.
#[derive(Debug)]
pub(super) struct StepScripts {
    pub(super) claim: Script,
    pub(super) extend: Script,
    pub(super) complete: Script,
    pub(super) release: Script,
}

impl StepScripts {
    pub(super) fn new() -> Self {
        let held = |step: &str| Script::new(&[PRELUDE, HELD, step].concat());
        Self {
            claim: Script::new(&[PRELUDE, CLAIM].concat()),
            extend: held(EXTEND),
            complete: held(COMPLETE),
            release: held(RELEASE),
        }
    }
}
