//! Key logs.
//!
//! A line a key, its words apart by spaces: those of the tables in docs/RMA-BENCH.md. Other lines
//! are skipped and counted, empty ones and those that begin with `#` silently. No line is ever
//! shown, as a word that is out of its place may be a key.

use core::{fmt, str::FromStr};
use std::{
    collections::HashMap,
    io::{self, BufRead},
    net::IpAddr,
};

use rma_core::{
    addr::{HostAddr, Pid},
    crypto::{DerivedRegionKey, KeyBinding, RegionKey, RegionKeySchedule},
    op::OpType,
};
use rma_star::{
    clock::ZTime,
    keys::{Binding, FrameKey},
    names::{ConnectionName, Era, Nonce, PdId, Qpn},
};

/// Octets of the longest line of keys; what is longer is none.
const LINE_MAX: u64 = 1024;

/// The ops that a K_d is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Right {
    pub(super) initiator: HostAddr,
    pub(super) responder: HostAddr,
    pub(super) pid: u32,
    pub(super) region: u32,
    pub(super) op: u8,
}

/// The keys of ops of one right: one for each K_r that their region had.
#[derive(Debug, Default)]
pub(super) struct Held {
    keys: Vec<DerivedRegionKey>,
    /// The one that opened a frame last.
    last: usize,
    /// Whether those of the region's K_r are among them.
    is_derived: bool,
}

impl Held {
    pub(super) const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The first key that `opens`, beginning with the one that did last.
    pub(super) fn find(
        &mut self,
        mut opens: impl FnMut(&DerivedRegionKey) -> bool,
    ) -> Option<DerivedRegionKey> {
        let (before, rest) = self.keys.split_at(self.last);
        let found = rest.iter().chain(before).position(&mut opens)?;
        self.last = (self.last + found) % self.keys.len();
        Some(self.keys[self.last])
    }
}

/// K_c, and what Z's clock was when it was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionKey {
    pub(super) key: FrameKey,
    pub(super) clock: ZTime,
}

/// The keys of a log.
#[derive(Default)]
pub struct Keys {
    derived: HashMap<Right, Held>,
    /// By responder and region.
    regions: HashMap<(HostAddr, u32), Vec<RegionKey>>,
    connections: HashMap<Binding, Vec<ConnectionKey>>,
    count: u64,
    strange: u64,
    first_strange: u64,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} keys)", self.count)
    }
}

impl Keys {
    /// Reads a key log.
    ///
    /// # Errors
    /// If the system refuses. Lines that are none are counted.
    pub fn read(mut log: impl BufRead) -> io::Result<Self> {
        let (mut keys, mut line) = (Self::default(), Vec::new());
        for number in 1.. {
            line.clear();
            if io::Read::take(&mut log, LINE_MAX).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            let is_long = line.len() as u64 == LINE_MAX && line.last() != Some(&b'\n');
            if is_long {
                log.skip_until(b'\n')?;
            }
            let text = if is_long { None } else { str::from_utf8(&line).ok() };
            let text = text.map(str::trim);
            if text.is_some_and(|it| it.is_empty() || it.starts_with('#')) {
                continue;
            }
            if text.and_then(|it| keys.add(it)).is_none() {
                keys.strange += 1;
                keys.first_strange = keys.first_strange.max(u64::from(keys.strange == 1) * number);
            }
        }
        Ok(keys.once())
    }

    /// Remarks on the log for its reader, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let Self { count, strange, first_strange, .. } = self;
        let mut notes = Vec::new();
        if *count == 0 {
            notes.push("no key is in it; log keys with --keylog at the hosts".to_owned());
        }
        if *strange > 0 {
            notes.push(format!("{strange} lines are no keys, the first is line {first_strange}"));
        }
        notes
    }

    /// Adds the key of a line. `None` if it has none.
    fn add(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_ascii_whitespace();
        match words.next()? {
            "1RMA_KD" => {
                let right = Right {
                    initiator: address(words.next())?,
                    responder: address(words.next())?,
                    pid: number(words.next())?,
                    op: number(words.next())?,
                    region: number(words.next())?,
                };
                OpType::from_code(right.op)?;
                let key = last(words)?;
                let held = self.derived.entry(right).or_default();
                held.keys.push(DerivedRegionKey::from_bytes(key));
            }
            "1RMA_KR" => {
                let region = (address(words.next())?, number(words.next())?);
                let key = RegionKey::from_bytes(last(words)?);
                self.regions.entry(region).or_default().push(key);
            }
            "STAR_KC" => {
                let (z, f) = (address(words.next())?, address(words.next())?);
                let connection = ConnectionName {
                    pd: PdId(number(words.next())?),
                    qpn_z: Qpn::from_bits(number(words.next())?),
                    qpn_f: Qpn::from_bits(number(words.next())?),
                    nonce: Nonce(number(words.next())?),
                    era: Era(number(words.next())?),
                };
                let clock = ZTime(number(words.next())?);
                let key = FrameKey::from_bytes(last(words)?);
                let held = self.connections.entry(Binding { connection, f, z }).or_default();
                held.push(ConnectionKey { key, clock });
            }
            _ => return None,
        }
        self.count += 1;
        Some(())
    }

    /// Each key once, however often hosts logged it.
    #[expect(clippy::iter_over_hash_type, reason = "each is put in order by itself")]
    fn once(mut self) -> Self {
        for held in self.derived.values_mut() {
            held.keys.sort_unstable_by_key(|it| *it.expose());
            held.keys.dedup();
        }
        for keys in self.regions.values_mut() {
            keys.sort_unstable_by_key(|it| *it.expose());
            keys.dedup();
        }
        for keys in self.connections.values_mut() {
            keys.sort_unstable_by_key(|it| (*it.key.expose(), it.clock));
            keys.dedup_by_key(|it| it.key);
        }
        self
    }

    /// The keys of ops of a right.
    pub(super) fn of(&mut self, right: Right) -> &mut Held {
        let Right { initiator, responder, pid, region, op } = right;
        let held = self.derived.entry(right).or_default();
        if let Some(op_type) = OpType::from_code(op)
            && initiator.is_ipv4() == responder.is_ipv4()
            && !core::mem::replace(&mut held.is_derived, true)
        {
            let binding = KeyBinding { initiator, responder, pid: Pid(pid), op_type };
            for key in self.regions.get(&(responder, region)).into_iter().flatten() {
                held.keys.push(RegionKeySchedule::new(key).derive(&binding));
            }
            held.keys.sort_unstable_by_key(|it| *it.expose());
            held.keys.dedup();
        }
        held
    }

    /// The K_c of a connection.
    pub(super) fn of_connection(&self, binding: &Binding) -> &[ConnectionKey] {
        self.connections.get(binding).map_or(&[], Vec::as_slice)
    }
}

fn address(word: Option<&str>) -> Option<HostAddr> {
    Some(HostAddr::from(word?.parse::<IpAddr>().ok()?))
}

fn number<T: FromStr>(word: Option<&str>) -> Option<T> {
    word?.parse().ok()
}

/// The key that the last of the words is.
fn last<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<[u8; 16]> {
    let digits: &[u8; 32] = words.next()?.as_bytes().try_into().ok()?;
    if words.next().is_some() {
        return None;
    }
    let mut key = [0; 16];
    for (octet, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
        let [high, low] = pair.map(|it| char::from(it).to_digit(16));
        *octet = (high? << 4 | low?) as u8;
    }
    Some(key)
}
