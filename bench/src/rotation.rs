//! Key rotations as a reader sees them: figure 14 of the paper (§5.2, §7.3).
//!
//! A reader probes a region without a pause while the region's key is rotated, again and again. The
//! first read under an old key fails with REMOTE_AUTHENTICATION_FAILURE; then the reader goes on
//! with the grant for the new key. *Unavailability* is the time from the issue of the first op that
//! failed to the issue of the first op that then succeeded. A second reader, on another region of
//! the same host, must not notice.
//!
//! All readers and the third party that rotates are portals of one host, driven by one thread: what
//! one of them does takes time from the others, as it would on one NIC.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rand::{SeedableRng, rngs::StdRng};
use rma_xdp::{
    Grant, InlineHost, OpStatus, OpType, Permissions, Portal, ReceiveQueue, RegionKey,
    RegisteredRegion, SubmitError,
    crypto::DerivedRegionKey,
    time::{Clock, TscClock},
};
use serde::Serialize;

mod run;

use crate::{
    amount::Amount,
    client::Client,
    error::PairError,
    grants::Grants,
    interrupt::Interrupt,
    latency::Latencies,
    load::LoadOp,
    measure::{Links, What, in_turns},
    pair::{Pair, Place},
    timeline::{Event, Timeline},
};
use run::Run;

/// The party that rotates the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The host that has the region.
    Host,
    /// A third party, with the Rekey op.
    RekeyOp,
}

/// The way in which the reader gets its next grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextGrant {
    /// It has it already.
    Beforehand,
    /// It asks the region's host over a TCP connection that is open already, once an op has failed.
    Fetched,
}

/// Bytes of each probing read.
const SIZE: u32 = 64;

/// Bytes of each of the two regions.
const REGION_LEN: usize = 64 << 10;

/// Turns of an engine between two looks at a TCP connection.
const TURNS_PER_LOOK: u32 = 16;

/// The results of many rotations of one kind.
#[derive(Clone, Debug)]
pub struct Rotations {
    /// The party that rotated.
    pub by: By,
    /// The way in which the reader got its grants.
    pub next_grant: NextGrant,
    /// Unavailability in each of the rotations.
    pub gaps: Latencies,
    /// The reader's ops that succeeded, while all of this was going on.
    pub reads: Latencies,
    /// The reader's ops that failed.
    pub failed: u64,
    /// Those of them that did so with something else than REMOTE_AUTHENTICATION_FAILURE.
    pub failed_otherwise: u64,
    /// The second reader's ops.
    pub other_ops: u64,
    /// Those of them that failed.
    pub other_failed: u64,
    /// Those of them that failed with REMOTE_AUTHENTICATION_FAILURE.
    pub other_refused: u64,
    /// The history of each rotation, with the time that the reader was without its region.
    histories: Vec<(u64, Vec<Event>)>,
}

/// The rows of a timeline.
const ROWS: [&str; 3] = ["rotation", "reader", "other region"];
const ROTATION: usize = 0;
const READER: usize = 1;
const OTHER: usize = 2;

impl Rotations {
    fn new(by: By, next_grant: NextGrant) -> Self {
        Self {
            by,
            next_grant,
            gaps: Latencies::new(),
            reads: Latencies::new(),
            failed: 0,
            failed_otherwise: 0,
            other_ops: 0,
            other_failed: 0,
            other_refused: 0,
            histories: Vec::new(),
        }
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.gaps.count()
    }

    /// Adds those of another round.
    pub fn merge(&mut self, other: Self) {
        self.gaps.merge(&other.gaps);
        self.reads.merge(&other.reads);
        self.failed += other.failed;
        self.failed_otherwise += other.failed_otherwise;
        self.other_ops += other.other_ops;
        self.other_failed += other.other_failed;
        self.other_refused += other.other_refused;
        self.histories.extend(other.histories);
    }

    /// Returns the history of the rotation with the median unavailability, and the time when its
    /// first failed op was issued; `None` if there was no rotation.
    fn median(&self) -> Option<(u64, u64, &[Event])> {
        let mut by_gap: Vec<_> = self.histories.iter().collect();
        by_gap.sort_by_key(|(gap, _)| *gap);
        let (gap, events) = by_gap.get(by_gap.len() / 2)?;
        let failed = events.iter().find(|event| event.row == READER && !event.ok)?;
        Some((*gap, failed.from, events))
    }

    /// The rotation whose unavailability is the median, drawn; empty if there was none.
    #[must_use]
    pub fn timeline(&self) -> String {
        let Some((gap, zero, events)) = self.median() else { return String::new() };
        // As much time before as a few reads take, and after it as well.
        let around = (3_000.0 * self.reads.quantile_us(0.5)).max(gap as f64 / 4.0) as u64;
        let shown = (zero.saturating_sub(around), zero + gap + around);
        Timeline { rows: &ROWS, events, zero, shown }.to_string()
    }

    /// The same rotation for machines.
    #[must_use]
    pub fn ops(&self) -> Vec<Op> {
        let Some((_, zero, events)) = self.median() else { return Vec::new() };
        let micros = |at: u64| (at as f64 - zero as f64) / 1e3;
        let op = |event: &Event| {
            let Event { row, from, to, ok } = *event;
            Op { what: ROWS[row], issued_us: micros(from), completed_us: micros(to), ok }
        };
        events.iter().map(op).collect()
    }
}

/// One op of a rotation's history.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Op {
    /// The op's role: the rotation's itself, the reader's, or the one's of the other region.
    pub what: &'static str,
    /// In microseconds from the issue of the first op that failed.
    pub issued_us: f64,
    /// As well.
    pub completed_us: f64,
    /// Whether it succeeded.
    pub ok: bool,
}

/// Two regions of the pair's server, three portals of its client, and a TCP connection between
/// them.
#[derive(Debug)]
pub struct Stage {
    probed: RegisteredRegion,
    reader: Party,
    /// The third party that rotates.
    rotator: Party,
    /// The reader of the other region.
    other: Party,
    client_end: TcpStream,
    server_end: TcpStream,
    random: StdRng,
}

/// A portal with one op at a time.
#[derive(Debug)]
struct Party {
    portal: Portal,
    grant: Grant,
    /// When its op was issued.
    issued: u64,
}

impl Party {
    fn is_busy(&self) -> bool {
        self.portal.outstanding() > 0
    }

    fn read(&mut self, client: &Client, place: u64) -> Result<(), SubmitError> {
        self.issued = client.clock.now().as_nanos();
        self.portal.read(&self.grant, place * 64, &client.local, 0, SIZE).map(drop)
    }

    /// Returns the status of its op, if it has ended, and its event in row `row`.
    fn poll(&mut self, clock: &TscClock, row: usize) -> Option<(OpStatus, Event)> {
        let status = self.portal.poll()?.status;
        let ok = status == OpStatus::Ok;
        Some((status, Event { row, from: self.issued, to: clock.now().as_nanos(), ok }))
    }
}

/// The mailbox in which the client leaves a key for the server's host to install.
#[derive(Debug, Default)]
struct Mailbox {
    full: AtomicBool,
    key: Mutex<Option<RegionKey>>,
}

impl Mailbox {
    fn put(&self, key: RegionKey) {
        *self.key.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        self.full.store(true, Ordering::Release);
    }

    /// Hands the key to `install`, if there is one. Looks at one flag otherwise.
    fn empty(&self, install: impl FnOnce(RegionKey)) {
        if self.full.load(Ordering::Acquire) {
            let key = self.key.lock().unwrap_or_else(PoisonError::into_inner).take();
            key.map(install);
            self.full.store(false, Ordering::Release);
        }
    }

    fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }
}

impl Stage {
    /// Sets the stage in `pair`, which is at `place`.
    ///
    /// # Errors
    /// If regions, slots or a TCP connection cannot be had.
    pub fn new(pair: &mut Pair, place: Place<'_>) -> Result<Self, PairError> {
        let Pair { client, server, .. } = pair;
        let one = *client.grants.any();
        let party = |permissions: Permissions, op_types: &[OpType]| {
            let region = server.register(REGION_LEN, permissions)?;
            let initiator = (one.initiator, one.pid);
            let grants = Grants::make(server, &region, initiator, op_types)?;
            Ok::<_, PairError>((region, grants))
        };
        let rekeyed = Permissions::READ | Permissions::REKEY;
        let (probed, grants) = party(rekeyed, &[OpType::Read, OpType::Rekey])?;
        let (_, other) = party(Permissions::READ, &[OpType::Read])?;
        let party =
            |grant| Ok::<_, PairError>(Party { portal: client.host.portal(1)?, grant, issued: 0 });
        let reader = party(grants.get(OpType::Read)?)?;
        let rotator = party(grants.get(OpType::Rekey)?)?;
        let other = party(other.get(OpType::Read)?)?;
        let (client_end, server_end) = connect(place, &one)?;
        let random = StdRng::seed_from_u64(client.pattern.seed());
        Ok(Self { probed, reader, rotator, other, client_end, server_end, random })
    }

    /// Rotates the key `count` times under the eyes of the readers.
    ///
    /// # Errors
    /// If op after op fails, or the TCP connection does.
    ///
    /// # Panics
    /// If the server's host does not know the region any longer. It does.
    pub fn rotate(
        &mut self,
        pair: &mut Pair,
        (by, next_grant): (By, NextGrant),
        count: u64,
        interrupt: &Interrupt,
    ) -> Result<Rotations, PairError> {
        let Self { probed, reader, rotator, other, client_end, server_end, random } = self;
        let mailbox = &Mailbox::default();
        let asks_for = reader.grant;
        let mut looks = 0_u32;
        let between_turns = |server: &mut InlineHost, _: &mut ReceiveQueue| {
            mailbox.empty(|key| server.rekey(probed, key).expect("the region is registered"));
            looks = looks.wrapping_add(1);
            if next_grant == NextGrant::Fetched && looks.is_multiple_of(TURNS_PER_LOOK) {
                answer(server_end, server, probed, &asks_for);
            }
        };
        pair.run_beside(between_turns, |client| {
            let rotations = Rotations::new(by, next_grant);
            Run { client, reader, rotator, other, client_end, mailbox, random, rotations }
                .all(count, interrupt)
        })
    }
}

/// Rotates keys in each of `kinds`, `amount` times, in turns with `reads` plain READs of the same
/// size in each round: what unavailability is compared with. Returns the READs' latencies as well.
///
/// # Errors
/// As [`Stage::new`] and [`Stage::rotate`].
pub fn beside_reads(
    pair: &mut Pair,
    place: Place<'_>,
    kinds: &[(By, NextGrant)],
    (amount, reads): (Amount, u64),
    interrupt: &Interrupt,
) -> Result<(Latencies, Vec<Rotations>), PairError> {
    let mut stage = Stage::new(pair, place)?;
    let mut latencies = Latencies::new();
    let mut all: Vec<Rotations> =
        kinds.iter().map(|&(by, next_grant)| Rotations::new(by, next_grant)).collect();
    let reads = Amount { count: reads, rounds: 1 };
    for round in 0..amount.rounds {
        let read = [What::warm(LoadOp::Read, SIZE)];
        latencies.merge(&in_turns(pair, Links::default(), read, reads, interrupt)?.latencies[0]);
        let (_, count) = amount.of_round(round);
        for (kind, rotations) in kinds.iter().zip(&mut all) {
            rotations.merge(stage.rotate(pair, *kind, count, interrupt)?);
        }
    }
    Ok((latencies, all))
}

/// A TCP connection from the client to the server, across the same interfaces as the hosts' frames.
fn connect(place: Place<'_>, one: &Grant) -> Result<(TcpStream, TcpStream), PairError> {
    let listener = {
        let _inside = place.lab().map(|lab| lab.b().enter()).transpose()?;
        TcpListener::bind((one.responder.ip(), 0))?
    };
    let to = listener.local_addr()?;
    let client_end = {
        let _inside = place.lab().map(|lab| lab.a().enter()).transpose()?;
        TcpStream::connect(to)?
    };
    let (server_end, _) = listener.accept()?;
    for end in [&client_end, &server_end] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
    }
    Ok((client_end, server_end))
}

/// Sends the reader its grant's key under the region's present key, if it has asked. In clear:
/// between two namespaces of one machine. Elsewhere this is what TLS is for.
fn answer(
    end: &mut TcpStream,
    server: &mut InlineHost,
    region: &RegisteredRegion,
    asks_for: &Grant,
) {
    // Nothing has come, or the client is gone and sees that itself.
    let Ok(1..) = end.read(&mut [0]) else { return };
    let Grant { initiator, pid, op_type, .. } = *asks_for;
    let grant = server.grant(region, initiator, pid, op_type).expect("the region is registered");
    // The client misses a key that cannot be sent.
    let _ = end.write_all(grant.key.expose());
}

/// The key that was asked for, once it has come.
fn fetched(end: &mut TcpStream) -> Result<Option<DerivedRegionKey>, PairError> {
    let mut key = [0; 16];
    match end.read(&mut key) {
        Ok(16) => Ok(Some(DerivedRegionKey::from_bytes(key))),
        Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error.into()),
    }
}
