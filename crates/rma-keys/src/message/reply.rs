//! The reply to a client: for each region its keys, the word that it has the latest, or a refusal;
//! or why nothing of its request was looked at.

use core::time::Duration;

use rma_core::{
    addr::{HostAddr, LocalAddresses, Pid},
    grant::Grant,
    op::OpType,
    region::RegionId,
};

use crate::{
    epoch::Epoch,
    limits::{FIELD_LEN_MAX, REGIONS_MAX, RETRY_MAX},
    message::{
        malformed::{Field, Malformed},
        reader::Reader,
        request::{read_address, write_address},
        writer::Writer,
    },
    secret::{GrantedKey, KEY_LEN, Octets},
    time::WallTime,
};

/// The most that one key takes, with its type of op.
const KEY_FIELD_LEN: usize = 2 + KEY_LEN;

/// The most that an answer takes, its keys aside.
const ANSWER_LEN_MAX: usize = 112;

/// A reply to a request, or to what was none.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// One answer for each region of the request, in its order.
    Answers(Vec<Answer>),
    /// Nothing of the request was looked at.
    Refused(Refusal),
}

/// The answer to a client about one region.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Keys for all types of op that it asked for.
    Granted(Granted),
    /// It has the latest keys already.
    Current {
        /// How long the latest are good for.
        lifetime: Duration,
        /// When to ask again.
        refresh: Duration,
    },
    /// There is no such region, or this client may not have it so. Which of the two is not said.
    Denied,
    /// It may have the region, but its host has no address of the region's family.
    NoAddressOfFamily,
}

/// A region, and the keys to it.
#[derive(Debug, PartialEq, Eq)]
pub struct Granted {
    /// The host that the region is registered at.
    pub responder: HostAddr,
    /// The region's name there.
    pub region: RegionId,
    /// Its length in bytes.
    pub region_len: u64,
    /// The keys of the present epoch.
    pub present: EpochKeys,
    /// When to ask again: the service will have announced other keys by then.
    pub refresh: Duration,
    /// The keys of the next epoch, if it is announced: good from some moment before the present
    /// one's lifetime ends.
    //= 1rma#5.2-predistributed
    pub next: Option<EpochKeys>,
}

/// The keys of one epoch of a region, for one process.
#[derive(Debug, PartialEq, Eq)]
pub struct EpochKeys {
    /// The epoch of the keys.
    pub epoch: Epoch,
    /// How long they are good for. Zero if their epoch has ended and the region's rotator is late:
    /// they are good until it acts.
    pub lifetime: Duration,
    /// A key for each type of op, in the order of their codes.
    pub keys: Vec<(OpType, GrantedKey)>,
}

/// The reason why a service refuses a whole request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too much is asked, by this client or by all.
    NotNow {
        /// How long to wait before asking again.
        retry: Duration,
    },
    /// It was no request.
    Wrong {
        /// The field that is wrong; empty if it is the message as a whole.
        field: Box<str>,
    },
    /// It was of another version. The version of the reply is the one that the service speaks.
    Version,
    /// The client's certificate has ended since it connected.
    CertificateEnded {
        /// The service's present time.
        seen: WallTime,
    },
}

impl Granted {
    /// The grants of `keys`, this region's, for process `pid` of a host with these addresses: those
    /// that were in the request. None if none of them is of the responder's family.
    pub fn grants(
        &self,
        keys: &EpochKeys,
        initiators: LocalAddresses,
        pid: Pid,
    ) -> impl Iterator<Item = Grant> {
        let initiator = initiators.toward(self.responder).into_iter();
        initiator.flat_map(move |initiator| {
            keys.keys.iter().map(move |(op_type, key)| Grant {
                responder: self.responder,
                region: self.region,
                region_len: self.region_len,
                initiator,
                pid,
                op_type: *op_type,
                key: key.derived_key(),
            })
        })
    }
}

impl Reply {
    /// The octets of this reply to request `number`, which hold its keys and are erased when they
    /// are dropped. A refusal of a message whose number could not be read has none.
    ///
    /// # Panics
    /// If it has no answer, or more than [`REGIONS_MAX`], or answers and no number.
    #[must_use]
    pub fn encode(&self, number: Option<u32>) -> Octets {
        let begin = |len| {
            let mut writer = Writer::new(ANSWER_LEN_MAX + len, 1 + u64::from(number.is_some()));
            if let Some(number) = number {
                writer.field(1).number(number.into());
            }
            writer
        };
        match self {
            Self::Answers(answers) => {
                assert!((1..=REGIONS_MAX).contains(&answers.len()), "a reply has 1 to 32 answers");
                assert!(number.is_some(), "what is answered was read, and has a number");
                let mut writer = begin(answers.iter().map(Answer::len_max).sum());
                writer.field(2).list(answers.len());
                answers.iter().for_each(|answer| answer.write(&mut writer));
                writer.finish()
            }
            Self::Refused(refusal) => {
                let mut writer = begin(0);
                refusal.write(writer.field(3));
                writer.finish()
            }
        }
    }

    /// The reply that these octets are. Which request it is to is [`message::number`]'s.
    ///
    /// [`message::number`]: crate::message::number
    ///
    /// # Errors
    /// If they are none, with the field and the value, unless it is a key.
    pub fn decode(octets: &[u8]) -> Result<Self, Malformed> {
        let (mut number, mut answers, mut refused) = (None, None, None);
        Reader::message(octets, |reader, key| {
            match key {
                1 => number = Some(reader.number_u32("number")?),
                2 => {
                    let read =
                        reader.list("answers", 1..=REGIONS_MAX, "1 to 32 answers", Answer::read)?;
                    answers = Some(read);
                }
                3 => refused = Some(Refusal::read(reader)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let missing = |name| Malformed::Missing { field: Field { entry: None, name } };
        match (number, answers, refused) {
            (_, _, Some(refusal)) => Ok(Self::Refused(refusal)),
            (Some(_), Some(answers), None) => Ok(Self::Answers(answers)),
            (None, Some(_), None) => Err(missing("number")),
            (_, None, None) => Err(missing("answers")),
        }
    }
}

impl Answer {
    fn len_max(&self) -> usize {
        let Self::Granted(Granted { present, next, .. }) = self else { return ANSWER_LEN_MAX };
        let epochs = 1 + usize::from(next.is_some());
        ANSWER_LEN_MAX + epochs * present.keys.len() * KEY_FIELD_LEN
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Self::Granted(granted) => {
                let Granted { responder, region, region_len, present, refresh, next } = granted;
                writer.map(6 + u64::from(next.is_some())).field(0).number(0);
                write_address(writer.field(1), *responder);
                writer.field(2).number(region.to_bits().into());
                writer.field(3).number(*region_len);
                present.write(writer.field(4));
                writer.field(5).millis(*refresh);
                if let Some(next) = next {
                    next.write(writer.field(6));
                }
            }
            Self::Current { lifetime, refresh } => {
                writer.map(3).field(0).number(1).field(5).millis(*refresh);
                writer.field(7).millis(*lifetime);
            }
            Self::Denied => _ = writer.map(1).field(0).number(2),
            Self::NoAddressOfFamily => _ = writer.map(1).field(0).number(3),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (mut kind, mut responder, mut region, mut region_len) = (None, None, None, None);
        let (mut present, mut refresh, mut next, mut lifetime) = (None, None, None, None);
        reader.map("fields", |reader, key| {
            match key {
                0 => {
                    let known = |kind| Some(kind).filter(|&it| it <= 3);
                    kind = Some(reader.coded("kind", "the kind of an answer, 0 to 3", known)?);
                }
                1 => responder = Some(read_address(reader, "responder")?),
                2 => region = Some(RegionId::from_bits(reader.number_u32("region")?)),
                3 => region_len = Some(reader.number("region-len")?),
                4 => present = Some(EpochKeys::read(reader, &PRESENT)?),
                5 => refresh = Some(reader.millis("refresh-ms")?),
                6 => next = Some(EpochKeys::read(reader, &NEXT)?),
                7 => lifetime = Some(reader.millis("lifetime-ms")?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(match reader.present(kind, "kind")? {
            0 => {
                let granted = Granted {
                    responder: reader.present(responder, "responder")?,
                    region: reader.present(region, "region")?,
                    region_len: reader.present(region_len, "region-len")?,
                    present: reader.present(present, PRESENT.map)?,
                    refresh: reader.present(refresh, "refresh-ms")?,
                    next,
                };
                let Granted { present, next, .. } = &granted;
                next.iter().try_for_each(|next| next.follows(present, reader))?;
                Self::Granted(granted)
            }
            1 => Self::Current {
                lifetime: reader.present(lifetime, "lifetime-ms")?,
                refresh: reader.present(refresh, "refresh-ms")?,
            },
            2 => Self::Denied,
            _ => Self::NoAddressOfFamily,
        })
    }
}

/// The names of the fields of an epoch's keys.
struct EpochFields {
    map: &'static str,
    life: &'static str,
    number: &'static str,
    lifetime: &'static str,
    keys: &'static str,
}

const PRESENT: EpochFields = EpochFields {
    map: "present",
    life: "present.life",
    number: "present.number",
    lifetime: "present.lifetime-ms",
    keys: "present.keys",
};

const NEXT: EpochFields = EpochFields {
    map: "next",
    life: "next.life",
    number: "next.number",
    lifetime: "next.lifetime-ms",
    keys: "next.keys",
};

impl EpochKeys {
    fn write(&self, writer: &mut Writer) {
        writer.map(4).epoch(self.epoch).field(2).millis(self.lifetime);
        writer.field(3).map(self.keys.len() as u64);
        for (op_type, key) in &self.keys {
            writer.field(*op_type as u64).octets(key.derived_key().expose());
        }
    }

    fn read(reader: &mut Reader<'_>, names: &EpochFields) -> Result<Self, Malformed> {
        let (mut life, mut number, mut lifetime, mut keys) = (None, None, None, None);
        reader.map(names.map, |reader, key| {
            match key {
                0 => life = Some(reader.life(names.life)?),
                1 => number = Some(reader.number(names.number)?),
                2 => lifetime = Some(reader.millis(names.lifetime)?),
                3 => keys = Some(read_keys(reader, names.keys)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let life = reader.present(life, names.life)?;
        Ok(Self {
            epoch: Epoch { life, number: reader.present(number, names.number)? },
            lifetime: reader.present(lifetime, names.lifetime)?,
            keys: reader.present(keys, names.keys)?,
        })
    }
}

impl EpochKeys {
    /// Whether these can be the keys that come after `present`. A client that took others would go
    /// back with the swap.
    fn follows(&self, present: &Self, reader: &Reader<'_>) -> Result<(), Malformed> {
        let (Epoch { life, number: value }, before) = (self.epoch, present.epoch);
        if life == before.life && value > before.number {
            return Ok(());
        }
        let expected = "of the present life, and above the present number";
        Err(Malformed::Value { field: reader.named(NEXT.number), value, expected })
    }
}

/// A map from types of op to keys: at least one. Types that are not known were not asked for.
fn read_keys(
    reader: &mut Reader<'_>,
    name: &'static str,
) -> Result<Vec<(OpType, GrantedKey)>, Malformed> {
    // Its capacity is the most that it can need: to grow would leave keys behind.
    let mut keys = Vec::with_capacity(OpType::ALL.len());
    reader.map(name, |reader, code| {
        let Some(op_type) = u8::try_from(code).ok().and_then(OpType::from_code) else {
            return Ok(false);
        };
        let octets = reader.array::<KEY_LEN>(name, "a key of 16 octets")?;
        keys.push((op_type, GrantedKey::from_octets(octets)));
        Ok(true)
    })?;
    if keys.is_empty() {
        return Err(Malformed::Missing { field: reader.named(name) });
    }
    Ok(keys)
}

impl Refusal {
    fn write(&self, writer: &mut Writer) {
        match self {
            Self::NotNow { retry } => {
                writer.map(2).field(0).number(1).field(1).millis(*retry);
            }
            Self::Wrong { field } => {
                let short = field.len() <= FIELD_LEN_MAX;
                writer.map(2).field(0).number(2).field(2).text(if short { field } else { "" });
            }
            Self::Version => _ = writer.map(1).field(0).number(3),
            Self::CertificateEnded { seen } => {
                let seconds = seen.unix_millis().div_euclid(1000).max(0) as u64;
                writer.map(2).field(0).number(4).field(3).number(seconds);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (mut reason, mut retry, mut field, mut seen) = (None, None, None, None);
        reader.map("refused", |reader, key| {
            match key {
                0 => {
                    let known = |reason| Some(reason).filter(|it| (1..=4).contains(it));
                    let read = reader.coded("refused.reason", "a reason, 1 to 4", known)?;
                    reason = Some(read);
                }
                1 => {
                    let known = |it| Some(Duration::from_millis(it)).filter(|&it| it <= RETRY_MAX);
                    let expected = "milliseconds of at most a minute, 60000";
                    retry = Some(reader.coded("refused.retry-ms", expected, known)?);
                }
                2 => {
                    let expected = "a field's name of at most 64 octets";
                    let name = reader.text("refused.field", 0..=FIELD_LEN_MAX, expected)?;
                    field = Some(name.into());
                }
                3 => {
                    let known = |it| i64::try_from(it).ok()?.checked_mul(1000);
                    let read = reader.coded("refused.seen", "seconds since 1970", known)?;
                    seen = Some(WallTime::from_unix_millis(read));
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(match reader.present(reason, "refused.reason")? {
            1 => Self::NotNow { retry: reader.present(retry, "refused.retry-ms")? },
            2 => Self::Wrong { field: reader.present(field, "refused.field")? },
            3 => Self::Version,
            _ => Self::CertificateEnded { seen: reader.present(seen, "refused.seen")? },
        })
    }
}
