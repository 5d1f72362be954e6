//! What is fixed: how long, how many, how often.

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
