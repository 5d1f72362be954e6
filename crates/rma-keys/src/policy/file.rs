//! A policy as people write it, in TOML.
//!
//! Unknown fields are refused, as a word that is misspelt would otherwise allow more than was
//! meant. Every error names the rule, its line, the field and the value.

use core::{fmt::Display, net::IpAddr, ops::Range, time::Duration};

use ipnet::IpNet;
use rma_core::op::OpType;
use serde::Deserialize;
use toml::{Spanned, Value, value::Datetime};

use crate::{
    identity::IdentityError,
    limits::{LIFETIME_MAX, POLICY_LEN_MAX, PREFIXES_MAX, RULES_MAX},
    ops::OpSet,
    peer::SerialError,
    policy::{
        pattern::{Pattern, PatternError},
        place::{Place, RuleKind},
        rule::{Refusal, Rule},
    },
    time::WallTime,
};

/// The reason why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The file is too long.
    #[error("a policy of {len} octets; policies have at most {POLICY_LEN_MAX}")]
    Length {
        /// Its length in octets.
        len: usize,
    },
    /// It says nothing at all.
    #[error("the policy is empty; if nobody is to be allowed anything, say: allow = []")]
    Empty,
    /// It is not TOML, or has a field that policies do not have.
    #[error("the policy cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// It has too many rules of one kind.
    #[error("{count} rules that {kind}; policies have at most {RULES_MAX} of each kind")]
    Rules {
        /// Their kind.
        kind: RuleKind,
        /// How many there are.
        count: usize,
    },
    /// A field of a rule has a value that means nothing.
    #[error("{place}: {field} = {value}: {fault}")]
    Field {
        /// The rule.
        place: Place,
        /// Its field.
        field: &'static str,
        /// The value, or the part of it that is wrong.
        value: Box<str>,
        /// The fault.
        fault: Fault,
    },
}

/// The fault of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// It is no identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It is no serial number.
    #[error(transparent)]
    Serial(#[from] SerialError),
    /// It is no type of op.
    #[error(
        "no type of op; they are read, write, rekey, send, write_with_imm, notify, compare_swap, fetch_add"
    )]
    Op,
    /// The list has no entry, or too many.
    #[error("{count} entries; there must be 1 to {max}")]
    Count {
        /// How many it has.
        count: usize,
        /// How many it may have.
        max: usize,
    },
    /// It is no prefix.
    #[error("no address or prefix, such as \"192.0.2.0/24\"")]
    Prefix,
    /// It is a prefix with bits after its length.
    #[error("bits are set after the prefix; {net} would be one")]
    HostBits {
        /// The prefix without these bits.
        net: IpNet,
    },
    /// It is no date, or has no time or zone.
    #[error("no date with time and zone, such as \"2027-01-01T00:00:00Z\"")]
    Date,
    /// It is no lifetime, or out of range.
    #[error("no lifetime of 1 second to 24 hours, such as \"90s\", \"15m\" or \"1h\"")]
    Lifetime,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyText {
    allow: Option<Vec<Spanned<AllowText>>>,
    refuse: Option<Vec<Spanned<RefuseText>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowText {
    region: String,
    identity: String,
    ops: Vec<String>,
    initiators: Option<Vec<String>>,
    until: Option<Value>,
    lifetime: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefuseText {
    identity: String,
    serial: Option<String>,
}

/// A rule that is being read: what its errors begin with.
struct At(Place);

impl At {
    fn fault(&self, field: &'static str, value: impl Display, fault: Fault) -> PolicyError {
        // Quoted as TOML quotes, and escaped: an error is one line.
        let value = format!("{:?}", value.to_string()).into();
        PolicyError::Field { place: self.0, field, value, fault }
    }

    fn read<T, E: Into<Fault>>(
        &self,
        field: &'static str,
        value: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, PolicyError> {
        read(value).map_err(|error| self.fault(field, value, error.into()))
    }
}

/// The rules and refusals of a policy.
pub(super) fn parse(text: &str) -> Result<(Vec<Rule>, Vec<Refusal>), PolicyError> {
    if text.len() > POLICY_LEN_MAX {
        return Err(PolicyError::Length { len: text.len() });
    }
    let PolicyText { allow, refuse } = toml::from_str(text)?;
    if allow.is_none() && refuse.is_none() {
        return Err(PolicyError::Empty);
    }
    let allow = rules(text, RuleKind::Allow, allow.unwrap_or_default(), rule)?;
    let refuse = rules(text, RuleKind::Refuse, refuse.unwrap_or_default(), refusal)?;
    Ok((allow, refuse))
}

/// Reads the rules of one kind.
fn rules<T, R>(
    text: &str,
    kind: RuleKind,
    texts: Vec<Spanned<T>>,
    read: impl Fn(&At, T) -> Result<R, PolicyError>,
) -> Result<Vec<R>, PolicyError> {
    if texts.len() > RULES_MAX {
        return Err(PolicyError::Rules { kind, count: texts.len() });
    }
    let line = |span: Range<usize>| {
        let before = text.as_bytes().get(..span.start).unwrap_or_default();
        1 + before.iter().filter(|&&octet| octet == b'\n').count()
    };
    let numbered = (1..).zip(texts);
    numbered
        .map(|(number, rule)| {
            let place = Place { kind, number, line: line(rule.span()) };
            read(&At(place), rule.into_inner())
        })
        .collect()
}

fn rule(at: &At, text: AllowText) -> Result<Rule, PolicyError> {
    let of_list = |field, count, max| match count {
        0 => Err(at.fault(field, "[]", Fault::Count { count, max })),
        _ if count > max => Err(at.fault(field, "[..]", Fault::Count { count, max })),
        _ => Ok(()),
    };
    of_list("ops", text.ops.len(), OpType::ALL.len())?;
    let ops: Result<OpSet, PolicyError> =
        text.ops.iter().map(|op| at.read("ops", op, op_type)).collect();
    let initiators = text.initiators.map(|nets| {
        of_list("initiators", nets.len(), PREFIXES_MAX)?;
        nets.iter().map(|net| at.read("initiators", net, prefix)).collect()
    });
    let lifetime = text.lifetime.map(|text| at.read("lifetime", &text, lifetime));
    Ok(Rule {
        place: at.0,
        region: at.read("region", &text.region, Pattern::of_names)?,
        identity: at.read("identity", &text.identity, Pattern::of_identities)?,
        ops: ops?,
        initiators: initiators.transpose()?,
        until: text.until.map(|value| until(at, &value)).transpose()?,
        lifetime: lifetime.transpose()?.unwrap_or(LIFETIME_MAX),
    })
}

fn refusal(at: &At, text: RefuseText) -> Result<Refusal, PolicyError> {
    let serial = text.serial.map(|serial| at.read("serial", &serial, str::parse));
    Ok(Refusal {
        place: at.0,
        identity: at.read("identity", &text.identity, str::parse)?,
        serial: serial.transpose()?,
    })
}

/// A type of op: its name in the papers, in lower case.
fn op_type(text: &str) -> Result<OpType, Fault> {
    let is_it = |it: &OpType| it.shape().name.to_ascii_lowercase() == text;
    OpType::ALL.into_iter().find(is_it).ok_or(Fault::Op)
}

/// A prefix, or an address that stands for itself.
fn prefix(text: &str) -> Result<IpNet, Fault> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let net: IpNet = text.parse().ok().or_else(address).ok_or(Fault::Prefix)?;
    // A host's IPv4 address is never written as IPv6, so such a prefix would match nothing.
    if matches!(net, IpNet::V6(net) if net.addr().to_ipv4_mapped().is_some()) {
        return Err(Fault::Prefix);
    }
    if net.addr() != net.network() {
        return Err(Fault::HostBits { net: net.trunc() });
    }
    Ok(net)
}

fn lifetime(text: &str) -> Result<Duration, Fault> {
    let seconds = |text: &str| {
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return None,
        };
        // `parse` would take a sign.
        let number = Some(number).filter(|it| it.bytes().all(|octet| octet.is_ascii_digit()))?;
        number.parse::<u64>().ok()?.checked_mul(unit)
    };
    let lifetime = seconds(text).map(Duration::from_secs);
    let in_range = |it: &Duration| !it.is_zero() && *it <= LIFETIME_MAX;
    lifetime.filter(in_range).ok_or(Fault::Lifetime)
}

/// A date, as TOML has it or as a text.
fn until(at: &At, value: &Value) -> Result<WallTime, PolicyError> {
    let date = match value {
        Value::Datetime(date) => Some(*date),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let shown = || match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    date.and_then(wall_time).ok_or_else(|| at.fault("until", shown(), Fault::Date))
}

/// The moment that a date names, if it has a time and a zone.
fn wall_time(date: Datetime) -> Option<WallTime> {
    let (day, time) = (date.date?, date.time?);
    let minutes_ahead = match date.offset? {
        toml::value::Offset::Z => 0,
        toml::value::Offset::Custom { minutes } => i64::from(minutes),
    };
    let (hours, minutes) = (i64::from(time.hour), i64::from(time.minute) - minutes_ahead);
    let seconds = (hours * 60 + minutes) * 60 + i64::from(time.second);
    Some(WallTime::from_civil(day.year, day.month, day.day, seconds * 1000))
}
