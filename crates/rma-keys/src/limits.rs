//! Fixed limits: how long, how many, how often.

use core::time::Duration;

/// The version of the messages. Another one is refused, whatever else the message says.
pub const VERSION: u64 = 1;

/// The longest message in octets. More would let a stranger make a service hold more; less would
/// not hold a reply about [`REGIONS_MAX`] regions with all types of op and two epochs.
pub const MESSAGE_LEN_MAX: usize = 16 << 10;

/// The most regions in one request. More saves few round trips, and a reply may not fit a message.
pub const REGIONS_MAX: usize = 32;

/// The longest name of a region in octets.
pub const NAME_LEN_MAX: usize = 255;

/// The longest identity in octets: SPIFFE's own limit.
pub const IDENTITY_LEN_MAX: usize = 2048;

/// The longest trust domain in octets: SPIFFE's own limit.
pub const DOMAIN_LEN_MAX: usize = 255;

/// The longest serial number of a certificate in octets (RFC 5280, section 4.1.2.2).
pub const SERIAL_LEN_MAX: usize = 20;

/// The most fields of one map of a message, with those that are not known here.
pub const FIELDS_MAX: usize = 64;

/// The longest name of a field in a refusal, in octets.
pub const FIELD_LEN_MAX: usize = 64;

/// The longest time that a key is given for. Longer, and one that has leaked is good for longer.
pub const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest time that a client is told to wait before it asks about a region again, as messages
/// know no shorter one but none. Longer, and keys that change more often are missed.
pub const REFRESH_MIN: Duration = Duration::from_millis(1);

/// The longest time that an overloaded service asks a client to wait.
pub const RETRY_MAX: Duration = Duration::from_secs(60);

/// The longest policy in octets.
pub const POLICY_LEN_MAX: usize = 1 << 20;

/// The most rules of a policy, of each kind: a request looks at all of them for each region.
pub const RULES_MAX: usize = 1024;

/// The most prefixes of one rule.
pub const PREFIXES_MAX: usize = 64;

/// The most regions of one catalog.
pub const CATALOG_MAX: usize = 1 << 16;

/// The shortest epoch. Shorter, and what the clocks of a host differ by would make a region change
/// its key without end; longer, and a rule that ends in the middle ends so much too late.
pub const EPOCH_MIN: Duration = Duration::from_millis(100);

/// How long before its turn a key is announced at least, in epochs that are long enough. Shorter,
/// and clients that come by together are many at once.
pub const LEAD_MIN: Duration = Duration::from_secs(1);

/// The delay after which a swap is counted and told: a driver has other things to do as well.
pub const LATE: Duration = Duration::from_millis(100);

/// How often a region whose permissions end at a date looks at the wall clock. Longer, and a clock
/// that is stepped leaves permissions that have ended for so long.
pub const WALL_EVERY: Duration = Duration::from_secs(10);

/// How long a rotator waits before it tries a step again, at first. It doubles.
pub const STEP_RETRY_MIN: Duration = Duration::from_millis(100);

/// How long a rotator waits before it tries a step again, at most.
pub const STEP_RETRY_MAX: Duration = Duration::from_secs(10);

/// After how many TIMEOUTs without an answer a client checks its keys: an owner that has started
/// again, or does not know the way to the client any longer, may answer old keys with silence.
/// Fewer, and every lost frame is a fetch.
pub const SILENCE: u32 = 3;

/// Over how long clients that check at the same event spread.
pub const CHECK_SPREAD: Duration = Duration::from_millis(100);

/// How long a client that hears nothing waits before it checks its keys again, at first. Doubles.
pub const CHECK_MIN: Duration = Duration::from_secs(1);

/// How long a client that hears nothing waits before it checks its keys again, at most.
pub const CHECK_MAX: Duration = Duration::from_secs(30);

/// How long it is remembered that there are no keys. Longer, and a rule that comes is noticed
/// later; shorter, and a client that may not asks the more.
pub const DENIED_FOR: Duration = Duration::from_secs(1);

/// How long after its connection was lost a service that denies what it has given before is taken
/// for one that has not published it yet: it is asked again, and calls wait. Longer, and whoever is
/// shut out while the service starts learns of it later; shorter, and an owner that takes longer to
/// start fails its clients' calls.
pub const STARTS_FOR: Duration = Duration::from_secs(2);

/// How long after a fetch that brought nothing new to a region's suspect keys a client fetches for
/// them again, at first: forged notices make no more fetches than that. Doubles.
pub const SPURIOUS_MIN: Duration = Duration::from_millis(10);

/// How long after such a fetch a client fetches for that region again, at most: so long a key of it
/// that has changed is noticed too late while somebody forges.
pub const SPURIOUS_MAX: Duration = Duration::from_secs(1);

/// After how long without such a fetch the wait is halved.
pub const SPURIOUS_HALVED: Duration = Duration::from_secs(10);

/// How long after such a fetch no region that has had one is asked about at the same service, for
/// each region to which it brought nothing. Longer, and whoever forges for many regions makes a key
/// of them that has changed be noticed later; shorter, and that many fetches come near what a
/// service lets one client ask, 1,000 regions a second.
pub const SPURIOUS_EACH: Duration = Duration::from_millis(3);

/// How long a client waits before it tries a service again that it could not reach, at first: a
/// random part of it, and it doubles.
pub const FETCH_RETRY_MIN: Duration = Duration::from_millis(200);

/// How long a client waits before it tries a service again that it could not reach, at most.
pub const FETCH_RETRY_MAX: Duration = Duration::from_secs(10);

/// How many fetches one call may wait for without a byte being transferred in between. More, and a
/// call without a deadline outlasts more forged notices; fewer, and a key that changes twice in a
/// round trip fails it.
pub const CALL_FETCHES: u32 = 3;

/// The most regions that one cache of grants holds keys of, by default.
pub const RINGS_MAX: usize = 4096;

/// How long a replica that did not answer is not asked, at first. Doubles.
pub const SUSPECT_MIN: Duration = Duration::from_millis(50);

/// How long a replica that did not answer is not asked, at most.
pub const SUSPECT_MAX: Duration = Duration::from_secs(1);

/// How long a call without a deadline waits for a key. Longer, and it outlasts a longer absence of
/// the service; shorter, and the application learns of that sooner.
pub const KEYS_WAIT_MAX: Duration = Duration::from_secs(10);
