//! A host that reads and writes: verified random ops, and a whole region from one end to the other.
//!
//! Everything happens on the calling thread, which turns the engine meanwhile. How long ops take,
//! and how many there are in a second, is measured by [`load`](crate::load).

use std::collections::HashMap;

use rand::{Rng, SeedableRng, rngs::StdRng};
use rma_lab::Pattern;
use rma_xdp::{
    Completion, HostError, InlineHost, OpStatus, OpType, Permissions, Portal, RegisteredRegion,
    ops::{CommandSlotId, Moves},
    time::{Clock, TscClock},
};

use crate::{
    amount::WARM,
    error::{PairError, hint},
    failures::Failures,
    grants::Grants,
    interrupt::Interrupt,
    model::Model,
};

/// The largest op.
const OP_SIZE_MAX: u32 = rma_xdp::ops::OP_SIZE_MAX;

/// A host that reads and writes, with everything that it needs for that.
#[derive(Debug)]
pub struct Client {
    /// The host whose engine this thread turns.
    pub host: InlineHost,
    /// Its command slots.
    pub portal: Portal,
    /// Those of further threads, if several issue ops.
    pub(crate) others: Vec<Portal>,
    /// The memory from which data leaves and in which it lands: one op's worth for each slot.
    pub local: RegisteredRegion,
    /// The memory that measured writes are sent from: [`WARM`] bytes, and the first of them once
    /// more.
    pub source: RegisteredRegion,
    /// The grants that it holds.
    pub grants: Grants,
    /// The content of the granted region before anybody wrote to it.
    pub pattern: Pattern,
    /// The expected content of the region, if this host writes to it.
    pub model: Option<Model>,
    /// For measuring.
    pub clock: TscClock,
    /// The part of the region that ops go to: all of it, unless some was set aside.
    area: Area,
    /// Its ops in a row that failed, and its pauses.
    pub(crate) failures: Failures,
    /// Of writes that did not end well and were not issued again: some of their bytes may be there.
    doubtful: Vec<Span>,
}

/// The counts of a verifying run.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Verified {
    /// Reads that completed with OK and whose bytes were all right.
    pub reads: u64,
    /// Writes that completed with OK.
    pub writes: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// Ops that ended otherwise and were issued again.
    pub retried: u64,
    /// Bytes of the region that were compared with the model afterwards, all that were never
    /// written among them.
    pub compared: u64,
}

impl Verified {
    const fn ops(&self) -> u64 {
        self.reads + self.writes
    }
}

/// The offset of an op in the granted region, and its size.
pub(crate) type Span = (u64, u32);

/// A part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first byte.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

impl Area {
    /// The ops that cover it.
    pub(crate) fn spans(self) -> impl Iterator<Item = Span> {
        let Self { offset: base, len } = self;
        (0..parts(len)).map(move |index| {
            let (offset, size) = part(index, len);
            (base + offset, size)
        })
    }

    /// So many bytes at its beginning, or all of it.
    pub(crate) fn with_len_at_most(self, len: u64) -> Self {
        Self { len: self.len.min(len), ..self }
    }
}

/// The use of the bytes of an op that ended with OK.
type Landed<'a> = dyn FnMut(Span, &mut [u8]) -> Result<(), PairError> + 'a;

impl Client {
    /// A client of `host` that keeps up to `depth` ops in flight.
    ///
    /// # Errors
    /// If slots or memory cannot be had.
    ///
    /// # Panics
    /// Never: the bounds are the regions' own.
    pub fn new(
        host: InlineHost,
        grants: Grants,
        pattern: Pattern,
        depth: u16,
    ) -> Result<Self, HostError> {
        let portal = host.portal(depth)?;
        let local_len = usize::from(depth) * OP_SIZE_MAX as usize;
        let local = host.register(local_len, Permissions::NONE)?;
        let source = host.register(WARM as usize + OP_SIZE_MAX as usize, Permissions::NONE)?;
        let mut bytes = vec![0; WARM as usize];
        Self::source_pattern(pattern).fill(0, &mut bytes);
        source.write(0, &bytes).expect("inside");
        source.write(WARM, &bytes[..OP_SIZE_MAX as usize]).expect("inside");
        let clock = TscClock::new();
        let area = Area { offset: 0, len: grants.any().region_len };
        let (model, failures, doubtful) = (None, Failures::default(), Vec::new());
        Ok(Self {
            host,
            portal,
            others: Vec::new(),
            local,
            source,
            grants,
            pattern,
            model,
            clock,
            area,
            failures,
            doubtful,
        })
    }

    /// The pattern that such clients write and send where a region has the pattern `held`.
    pub(crate) fn source_pattern(held: Pattern) -> Pattern {
        Pattern::new(!held.seed())
    }

    /// Waits until the responder answers, for up to 5 s unless more or less was asked for: the
    /// kernel asks for a neighbour three times, a second apart, and then once more when the next
    /// frame wants it. Right after a link has come up, it may still be asking for this host's
    /// hardware address, and drop what it would send meanwhile.
    ///
    /// It asks for what changes nothing: reads a byte, writes one that is there, or has an atomic
    /// leave its word as it is. Where SEND alone is granted it sends a message as any other.
    ///
    /// # Errors
    /// [`PairError::Failing`] if no answer came at all; what an answer says is not looked at.
    pub fn reach(&mut self, interrupt: &Interrupt) -> Result<(), PairError> {
        const TRIED: [OpType; 5] =
            [OpType::Read, OpType::Write, OpType::CompareSwap, OpType::FetchAdd, OpType::Send];
        let Some(op_type) = TRIED.into_iter().find(|&it| self.grants.has(it)) else {
            return Ok(());
        };
        let grant = self.grants.get(op_type)?;
        let at = self.area.offset;
        let word = self.word(at);
        self.local.write(0, &word.to_le_bytes()).expect("an op's worth");
        let began = self.clock.now();
        let mut failures = 0;
        loop {
            let Self { portal, source, local, .. } = self;
            match op_type {
                OpType::Read => portal.read(&grant, at, local, 0, 1)?,
                OpType::Send => portal.send(&grant, source, 0, 1, 0)?,
                OpType::CompareSwap => portal.compare_swap(&grant, at, word, word)?,
                OpType::FetchAdd => portal.fetch_add(&grant, at, 0)?,
                _ => portal.write(&grant, at, local, 0, 1)?,
            };
            let Completion { status, .. } = self.host.wait(&mut self.portal)?;
            if !matches!(status, OpStatus::Timeout | OpStatus::DispatchTimeout) {
                return Ok(());
            }
            failures += 1;
            if interrupt.is_set() {
                return Err(PairError::Interrupted);
            }
            if self.clock.now().since(began) >= self.failures.patience() {
                return Err(PairError::Failing { failures, status, hint: hint(status) });
            }
        }
    }

    /// Runs `count` ops of `op_type` of random size at random places of the granted region. Reads:
    /// checks every byte that arrives. Writes: random bytes, and the model follows them; no two
    /// that overlap are in flight at once.
    ///
    /// # Errors
    /// If a byte is wrong, or op after op fails.
    pub fn verify(
        &mut self,
        op_type: OpType,
        count: u64,
        interrupt: &Interrupt,
        progress: impl FnMut(&Verified),
    ) -> Result<Verified, PairError> {
        let Area { offset, len } = self.area();
        let mut random = StdRng::seed_from_u64(self.pattern.seed() ^ op_type as u64);
        let place = |_| {
            let size = random.random_range(1..=u64::from(OP_SIZE_MAX).min(len));
            (offset + random.random_range(0..=len - size), size as u32)
        };
        let seed = self.pattern.seed();
        let mut written = 0_u64;
        let data = |_: Span, bytes: &mut [u8]| {
            written += 1;
            Pattern::new(seed.rotate_left(32) ^ written).fill(0, bytes);
        };
        self.ops(op_type, count, interrupt, (place, data), progress)
    }

    /// Reads all of an area.
    ///
    /// # Errors
    /// If op after op fails.
    pub fn read_all(&mut self, area: Area, interrupt: &Interrupt) -> Result<Vec<u8>, PairError> {
        let Area { offset: base, len } = area;
        let mut bytes = vec![0; usize::try_from(len).expect("of a size that can be had")];
        let mut landed = |(offset, size): Span, arrived: &mut [u8]| {
            bytes[(offset - base) as usize..][..size as usize].copy_from_slice(arrived);
            Ok(())
        };
        let mut spans = area.spans();
        let place = |_| spans.next().expect("as many as there are parts");
        let what = (place, |_: Span, _: &mut [u8]| ());
        self.pipelined(OpType::Read, parts(len), interrupt, what, &mut landed, |_| ())?;
        Ok(bytes)
    }

    /// Writes `bytes` to where the area begins, where it should hold something else now.
    ///
    /// # Errors
    /// If op after op fails.
    pub fn restore(&mut self, bytes: &[u8], interrupt: &Interrupt) -> Result<Verified, PairError> {
        let doubtful = core::mem::take(&mut self.doubtful);
        let Some(model) = &self.model else { return Ok(Verified::default()) };
        let (base, len) = (self.area.offset, bytes.len() as u64);
        let of = |(offset, size): Span| &bytes[(offset - base) as usize..][..size as usize];
        let changed: Vec<Span> = Area { offset: base, len }
            .spans()
            .filter(|&span| {
                model.first_difference(span.0, of(span)).is_some()
                    || doubtful.iter().any(|&other| overlap(span, other))
            })
            .collect();
        let at = |index| changed[index as usize];
        let data = |span: Span, out: &mut [u8]| out.copy_from_slice(of(span));
        let done = self.ops(OpType::Write, changed.len() as u64, interrupt, (at, data), |_| ());
        if done.is_err() {
            self.doubtful.extend(doubtful);
        }
        done
    }

    /// Has room for as many ops at once in each of some threads, if it has not. Nothing may be
    /// under way.
    ///
    /// # Errors
    /// If slots or memory cannot be had.
    pub(crate) fn deepen(&mut self, depth: u16, threads: u16) -> Result<(), HostError> {
        if self.portal.slots().len() < usize::from(depth) {
            self.portal = self.host.portal(depth)?;
            let local_len = usize::from(depth) * OP_SIZE_MAX as usize;
            self.local = self.host.register(local_len, Permissions::NONE)?;
        }
        self.others = (1..threads).map(|_| self.host.portal(depth)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The part of the region that ops go to.
    #[must_use]
    pub const fn area(&self) -> Area {
        self.area
    }

    /// Sets the part of the region that ops go to from now on, which is not empty.
    pub(crate) const fn set_area(&mut self, area: Area) {
        self.area = area;
    }

    /// The word that the region should hold at `offset`.
    pub fn word(&self, offset: u64) -> u64 {
        word_at(self.model.as_ref(), self.pattern, offset)
    }

    /// [`Client::pipelined`], with what arrives checked and what is written noted.
    fn ops(
        &mut self,
        op_type: OpType,
        count: u64,
        interrupt: &Interrupt,
        what: (impl FnMut(u64) -> Span, impl FnMut(Span, &mut [u8])),
        progress: impl FnMut(&Verified),
    ) -> Result<Verified, PairError> {
        let mut model = self.model.take();
        let pattern = self.pattern;
        let mut landed = |(offset, _): Span, bytes: &mut [u8]| {
            let wrong = match (&mut model, op_type.shape().moves) {
                (Some(model), Moves::Out) => {
                    model.apply(offset, bytes);
                    None
                }
                (Some(model), Moves::In) => model.first_difference(offset, bytes),
                (None, Moves::In) => pattern.first_difference(offset, bytes),
                (None, Moves::Out) => None,
            };
            wrong.map_or(Ok(()), |at| Err(PairError::WrongByte { at }))
        };
        let done = self.pipelined(op_type, count, interrupt, what, &mut landed, progress);
        self.model = model;
        done
    }

    /// Runs `count` ops of `op_type` with as many in flight as there are slots: `place` says where
    /// each goes, `data` makes the bytes of a write; `landed` sees the bytes of each op that ended
    /// with OK. One that did not is issued again.
    fn pipelined(
        &mut self,
        op_type: OpType,
        count: u64,
        interrupt: &Interrupt,
        (mut place, mut data): (impl FnMut(u64) -> Span, impl FnMut(Span, &mut [u8])),
        landed: &mut Landed<'_>,
        mut progress: impl FnMut(&Verified),
    ) -> Result<Verified, PairError> {
        let (grant, moves) = (self.grants.get(op_type)?, op_type.shape().moves);
        // One that ended early has left ops under way. It is an error once there are none.
        while self.host.wait(&mut self.portal).is_ok() {}
        let mut in_flight: HashMap<CommandSlotId, Span> = HashMap::new();
        let mut again: Vec<Span> = Vec::new();
        let mut done = Verified::default();
        let mut issued = 0;
        let mut bytes = [0; OP_SIZE_MAX as usize];
        while done.ops() < count {
            let stops = interrupt.is_set();
            if stops && in_flight.is_empty() {
                if moves == Moves::Out {
                    self.doubtful.append(&mut again);
                }
                progress(&done);
                return Err(PairError::Interrupted);
            }
            while !stops
                && let Some(slot) = self.portal.next_slot()
                && (issued < count || !again.is_empty())
            {
                let span = again.pop().unwrap_or_else(|| {
                    issued += 1;
                    place(issued - 1)
                });
                // Of two writes that overlap nobody knows which lands last.
                if moves == Moves::Out && in_flight.values().any(|other| overlap(span, *other)) {
                    again.push(span);
                    break;
                }
                // Data is at the place of its slot, which is free as long as the slot is.
                let (at, (offset, size)) = (self.place(slot), span);
                let slot = if moves == Moves::Out {
                    data(span, &mut bytes[..size as usize]);
                    self.local.write(at, &bytes[..size as usize]).expect("inside");
                    self.portal.write(&grant, offset, &self.local, at, size)?
                } else {
                    self.portal.read(&grant, offset, &self.local, at, size)?
                };
                in_flight.insert(slot, span);
            }
            let completion = self.host.wait(&mut self.portal)?;
            let span = in_flight
                .remove(&completion.slot)
                .expect("completions name slots that were issued");
            let now = self.clock.now();
            if completion.status == OpStatus::Ok {
                self.failures.ok(now);
                let bytes = &mut bytes[..span.1 as usize];
                self.local.read(self.place(completion.slot), bytes).expect("inside");
                landed(span, bytes)?;
                if moves == Moves::Out {
                    done.writes += 1;
                } else {
                    done.reads += 1;
                }
                done.bytes += u64::from(span.1);
            } else {
                again.push(span);
                done.retried += 1;
                if let Err(why) = self.failures.count(completion.status, now) {
                    if moves == Moves::Out {
                        self.doubtful.extend(again.into_iter().chain(in_flight.into_values()));
                    }
                    return Err(why);
                }
            }
            if done.ops() % 1024 == 0 {
                progress(&done);
            }
        }
        Ok(done)
    }

    /// Notes that some bytes of a write may be there though it did not end well.
    pub(crate) fn doubt_area(&mut self, area: Area) {
        self.doubtful.extend(area.spans());
    }

    /// Returns the offset in `local` of the data of a slot's op.
    pub(crate) fn place(&self, slot: CommandSlotId) -> u64 {
        u64::from(slot.0 - self.portal.slots().start) * u64::from(OP_SIZE_MAX)
    }
}

/// The word at `offset` of a region that holds what `model` says, or else `pattern`.
pub(crate) fn word_at(model: Option<&Model>, pattern: Pattern, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    match model {
        Some(model) => model.read(offset, &mut bytes),
        None => pattern.fill(offset, &mut bytes),
    }
    u64::from_le_bytes(bytes)
}

/// How many ops the first `len` bytes of a region are.
const fn parts(len: u64) -> u64 {
    len.div_ceil(OP_SIZE_MAX as u64)
}

/// The one with this index, as large as can be.
fn part(index: u64, len: u64) -> Span {
    let offset = index * u64::from(OP_SIZE_MAX);
    (offset, (len - offset).min(OP_SIZE_MAX.into()) as u32)
}

/// Whether two spans share a byte.
pub(crate) fn overlap(a: Span, b: Span) -> bool {
    a.0 < b.0 + u64::from(b.1) && b.0 < a.0 + u64::from(a.1)
}

#[cfg(test)]
mod tests {
    use core::{net::Ipv4Addr, time::Duration};

    use rma_xdp::{
        HostAddr, HostConfig,
        config::{NicConfigBuilder, Timing},
    };

    use super::*;

    /// As right after a link has come up: the server answers when the client has given up more ops
    /// than a run may lose.
    #[test]
    fn a_server_that_does_not_answer_at_first_is_waited_for() {
        let [server_addr, client_addr] = [0, 1].map(|last| {
            HostAddr::from(Ipv4Addr::from(0x7f40_0000 | std::process::id() << 1 | last))
        });
        // Sixty ops are given up within a second.
        let timing = Timing::new(Duration::from_millis(5), Duration::from_millis(10));
        let nic = NicConfigBuilder::default().with(|it| it.timing = timing);
        let open = |addr| InlineHost::open(HostConfig::udp(addr).with(|it| it.nic = nic)).unwrap();
        let mut server = open(server_addr);
        let host = open(client_addr);
        let region = server.register(4096, Permissions::READ).unwrap();
        let initiator = (client_addr, host.pid());
        let grants = Grants::make(&server, &region, initiator, &[OpType::Read]).unwrap();
        let pattern = Pattern::new(1);
        pattern.fill_region(&region);
        let mut client = Client::new(host, grants, pattern, 8).unwrap();
        let source = client.host.metrics_source().clone();
        let given_up = || {
            let metrics = source.metrics();
            metrics.completions.iter().find(|(status, _)| *status == OpStatus::Timeout).unwrap().1
        };
        let stop = Interrupt::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while given_up() < 60 && !stop.is_set() {
                    std::thread::yield_now();
                }
                while !stop.is_set() {
                    server.turn();
                }
            });
            let reached = client.reach(&stop);
            let verified = client.verify(OpType::Read, 100, &stop, |_| ());
            stop.set();
            reached.unwrap();
            assert_eq!(verified.unwrap().reads, 100);
        });
    }

    #[test]
    fn a_region_is_cut_into_ops_that_cover_every_byte_once() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let mut end = 0;
            for (offset, size) in (0..parts(len)).map(|index| part(index, len)) {
                assert_eq!(offset, end);
                assert!((1..=OP_SIZE_MAX).contains(&size));
                end += u64::from(size);
            }
            assert_eq!(end, len);
        }
    }

    #[test]
    fn spans_overlap_if_they_share_a_byte() {
        assert!(overlap((0, 2), (1, 1)) && overlap((5, 1), (0, 10)) && overlap((0, 10), (5, 1)));
        assert!(!overlap((0, 2), (2, 1)) && !overlap((2, 1), (0, 2)));
    }
}
