//! Queue pairs of StaR between the two hosts of a pair: SENDs one at a time, the paper's RPC, and
//! large WRITEs.
//!
//! The client's ends are on its thread, the server's on its own, which looks between any two turns
//! of its engine. Which of them is the stateful side is for whoever opens them to say. Invariant:
//! receivers compare every message with what it has to be, and no work request may fail.

use core::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    time::Duration,
};

use rma_bench::{
    client::Client, error::PairError, interrupt::Interrupt, latency::Latencies, one_way::pause,
    pair::Pair,
};
use rma_xdp::{
    InlineHost,
    star::{
        Access, CqId, MemoryRegion, Qp, QpConfig, QpState, RecvWr, Role, SendWr, StarPortalConfig,
        StarVerbs, Wc, WcStatus,
    },
    time::{Clock, Instant},
};

use crate::error::QueuePairError;

/// Bytes of a message, as the paper's workloads have them (§V).
const MESSAGE: u32 = 32;

/// Bytes that a message has for itself in the memory of either end.
const PLACE: u64 = 64;

/// RECVs that are posted to a queue pair all the time: more than messages can come at once.
const RECVS: u64 = 8;

/// Messages of a queue pair that it sends have so many places, in turns.
const SEND_PLACES: u64 = 2;

/// SENDs of a queue pair that may not be complete yet.
const SENDS: u16 = 16;

/// SENDs of a client to each answer (§V).
const SENDS_PER_CALL: u64 = 3;

/// Completions taken at once.
const WCS: usize = 32;

/// Bytes of a large WRITE.
pub const LARGE: u64 = 1 << 20;

/// Large WRITEs under way at once, so that one begins while the other ends.
pub const PIPELINED: u64 = 2;

/// How long connections may take until they are set up.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings that queue pairs are opened with.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The role of the client.
    pub client: Role,
    /// The role of the server.
    pub server: Role,
    /// How many connections.
    pub connections: u32,
}

impl Shape {
    /// The client is the stateful side, as the paper's clients are.
    #[must_use]
    pub const fn stateless_server(connections: u32) -> Self {
        Self { client: Role::Stateful, server: Role::Stateless, connections }
    }

    /// The client is the stateless side.
    #[must_use]
    pub const fn stateless_client(connections: u32) -> Self {
        Self { client: Role::Stateless, server: Role::Stateful, connections }
    }
}

/// The queue pairs of one host. What belongs to each is found by its number.
#[derive(Debug)]
struct End {
    verbs: StarVerbs,
    cq: CqId,
    qps: Vec<Qp>,
    /// Of each queue pair its messages: one that it sends, and those that come.
    messages: MemoryRegion,
    /// Of large WRITEs.
    large: MemoryRegion,
    wcs: [Wc; WCS],
}

/// The connections between the hosts of a pair.
#[derive(Debug)]
pub struct QueuePairs {
    client: End,
    server: End,
}

/// The server's knowledge of SENDs that come one at a time.
#[derive(Debug, Default)]
struct Seen {
    /// The number of the message; 0: none.
    number: AtomicU64,
    /// When, in nanoseconds.
    at: AtomicU64,
    /// How many messages were not what they had to be.
    wrong: AtomicU64,
}

/// A message: its number, over and over.
fn message(number: u64) -> [u8; MESSAGE as usize] {
    let mut bytes = [0; MESSAGE as usize];
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    bytes
}

/// Returns the offset of queue pair `of`'s messages in an end's memory.
const fn places(of: usize) -> u64 {
    of as u64 * (SEND_PLACES + RECVS) * PLACE
}

/// The place of message `number` of a queue pair, which it sends. That of the one before is
/// another, as that may not be complete yet.
const fn send_place(of: usize, number: u64) -> u64 {
    places(of) + number % SEND_PLACES * PLACE
}

/// The place of a RECV of a queue pair.
const fn recv_place(of: usize, recv: u64) -> u64 {
    places(of) + (SEND_PLACES + recv) * PLACE
}

/// Names a RECV: its queue pair, and which of its RECVs.
const fn recv_id(of: usize, recv: u64) -> u64 {
    of as u64 * RECVS + recv
}

impl End {
    fn open(host: &InlineHost, role: Role, connections: u32) -> Result<Self, PairError> {
        let depth = RECVS + u64::from(SENDS);
        let mut verbs = host.verbs(StarPortalConfig::default().with(|it| {
            it.work_requests = connections * depth as u32 + PIPELINED as u32;
            it.queue_pairs = connections;
            it.stateful_connections = if role == Role::Stateless { 0 } else { connections };
        }))?;
        let pd = host.alloc_pd(&verbs)?;
        let messages_len = places(connections as usize) as usize;
        let messages = host.reg_mr(&pd, messages_len, Access::LOCAL_WRITE)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let large = host.reg_mr(&pd, (LARGE * PIPELINED) as usize, access)?;
        let cq = verbs.create_cq(connections * depth as u32 + PIPELINED as u32);
        let config = QpConfig { role, send_depth: SENDS, recv_depth: RECVS as u16 };
        let qps = (0..connections)
            .map(|_| verbs.create_qp(&pd, cq, cq, config).map_err(QueuePairError::from))
            .collect::<Result<_, _>>()?;
        Ok(Self { verbs, cq, qps, messages, large, wcs: [Wc::EMPTY; WCS] })
    }

    fn post_recv(&mut self, of: usize, recv: u64) -> Result<(), QueuePairError> {
        let sge = self.messages.slice(recv_place(of, recv), MESSAGE);
        Ok(self.verbs.post_recv(self.qps[of], &RecvWr { wr_id: recv_id(of, recv), sge })?)
    }

    fn post_recvs(&mut self) -> Result<(), QueuePairError> {
        let all = (0..self.qps.len()).flat_map(|of| (0..RECVS).map(move |recv| (of, recv)));
        all.into_iter().try_for_each(|(of, recv)| self.post_recv(of, recv))
    }

    /// Sends message `number`.
    fn send(&mut self, of: usize, number: u64) -> Result<(), QueuePairError> {
        let at = send_place(of, number);
        self.messages.write(at, &message(number)).expect("inside");
        let sge = self.messages.slice(at, MESSAGE);
        Ok(self.verbs.post_send(self.qps[of], &SendWr::send(0, sge).inline())?)
    }

    /// Takes what is complete, and gives for each message its queue pair and number to `each`,
    /// whose RECV is posted again. A number of 0 is a message that is not whole.
    fn take(
        &mut self,
        mut each: impl FnMut(&mut Self, usize, u64) -> Result<(), QueuePairError>,
    ) -> Result<u64, QueuePairError> {
        let mut sent = 0;
        for index in 0..self.verbs.poll_cq(self.cq, &mut self.wcs) {
            let Wc { wr_id, status, opcode, byte_len, .. } = self.wcs[index];
            if status != WcStatus::Success {
                return Err(QueuePairError::Failed { opcode, status });
            }
            if !opcode.is_recv() {
                sent += 1;
                continue;
            }
            let (of, recv) = ((wr_id / RECVS) as usize, wr_id % RECVS);
            let mut bytes = [0; MESSAGE as usize];
            self.messages.read(recv_place(of, recv), &mut bytes).expect("inside");
            let number = u64::from_le_bytes(*bytes.first_chunk().expect("longer than a word"));
            let is_whole = byte_len == MESSAGE && bytes == message(number);
            each(self, of, if is_whole { number } else { 0 })?;
            self.post_recv(of, recv)?;
        }
        Ok(sent)
    }

    fn is_ready(&self, of: usize) -> bool {
        self.verbs.state(self.qps[of]) == Some(QpState::Ready)
    }
}

impl QueuePairs {
    /// Opens them, of hosts that serve StaR, and posts the RECVs of all.
    ///
    /// # Errors
    /// If something could not be had.
    pub fn open(pair: &mut Pair, shape: Shape) -> Result<Self, PairError> {
        let mut both = Self {
            client: End::open(&pair.client.host, shape.client, shape.connections)?,
            server: End::open(&pair.server, shape.server, shape.connections)?,
        };
        for of in 0..shape.connections as usize {
            both.connect(pair, of)?;
        }
        both.client.post_recvs()?;
        both.server.post_recvs()?;
        Ok(both)
    }

    /// Passes the messages of a set-up on: both ends are in this process.
    fn connect(&mut self, pair: &mut Pair, of: usize) -> Result<(), PairError> {
        let Self { client, server } = self;
        let (near, far) = (client.qps[of], server.qps[of]);
        let end = pair.client.clock.now() + PATIENCE;
        client.verbs.connect(near).map_err(QueuePairError::from)?;
        while !(client.is_ready(of) && server.is_ready(of)) {
            pair.client.host.turn();
            pair.server.turn();
            if let Some(octets) = client.verbs.poll_message(near) {
                server.verbs.handle_message(far, &octets).map_err(QueuePairError::from)?;
            }
            if let Some(octets) = server.verbs.poll_message(far) {
                client.verbs.handle_message(near, &octets).map_err(QueuePairError::from)?;
            }
            if pair.client.clock.now() > end {
                return Err(QueuePairError::NotReady { patience: PATIENCE }.into());
            }
        }
        Ok(())
    }

    /// Sends `count` messages through the first connection, after some to warm up, one some time
    /// after the one before is there: how long each takes, from before it is posted until its
    /// receiver has the completion of its RECV.
    ///
    /// # Errors
    /// If a work request fails, or a message is wrong.
    pub fn one_way(
        &mut self,
        pair: &mut Pair,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let Self { client: sender, server: receiver } = self;
        let (seen, clock) = (&Seen::default(), pair.client.clock.clone());
        let mut failed = None;
        let note = &mut failed;
        let result = pair.run_beside(
            move |_, _| {
                let taken = receiver.take(|_, _, number| {
                    if number == 0 {
                        seen.wrong.fetch_add(1, Relaxed);
                    }
                    seen.at.store(clock.now().as_nanos(), Relaxed);
                    seen.number.store(number, Release);
                    Ok(())
                });
                *note = taken.err().or(note.take());
            },
            |client| sender.send_all(client, (warm_up, count), seen, interrupt),
        );
        if let Some(error) = failed {
            return Err(error.into());
        }
        let latencies = result?;
        match seen.wrong.load(Relaxed) {
            0 => Ok(latencies),
            wrong => Err(PairError::WrongMessages { wrong, messages: warm_up + count }),
        }
    }

    /// The paper's RPC (§V) over all connections: a call is three SENDs of 32 B to the server,
    /// which answers with one, and the next call begins at once. `count` calls, after some to warm
    /// up; returns how many a second.
    ///
    /// # Errors
    /// If a work request fails, or a message is wrong.
    pub fn calls_per_second(
        &mut self,
        pair: &mut Pair,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        let Self { client: caller, server: answerer } = self;
        let mut failed = None;
        let mut asked = vec![0_u64; answerer.qps.len()];
        let result = pair.run_beside(
            |_, _| {
                let taken = answerer.take(|end, of, number| {
                    asked[of] += 1;
                    // An answer says which question was the last, if all were right.
                    match asked[of].is_multiple_of(SENDS_PER_CALL) {
                        true => end.send(of, number),
                        false if number == 0 => end.send(of, u64::MAX),
                        false => Ok(()),
                    }
                });
                failed = taken.err().or(failed.take());
            },
            |client| caller.call_all(client, (warm_up, count), interrupt),
        );
        match failed {
            Some(error) => Err(error.into()),
            None => result,
        }
    }

    /// Writes `count` times 1 MiB to the server through the first connection, two of them under way
    /// at once, always to the same two places. Returns bytes a second.
    ///
    /// # Errors
    /// If a work request fails.
    pub fn write_goodput(
        &mut self,
        pair: &mut Pair,
        count: u64,
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        let Self { client: writer, server } = self;
        pair.run(|client| {
            let start = client.clock.now();
            let (mut posted, mut done, mut looks) = (0, 0, 0_u32);
            while done < count {
                if posted < count && posted - done < PIPELINED {
                    let at = posted % PIPELINED * LARGE;
                    let (sge, remote) =
                        (writer.large.slice(at, LARGE as u32), server.large.remote(at));
                    let posting =
                        writer.verbs.post_send(writer.qps[0], &SendWr::write(0, sge, remote));
                    posting.map_err(QueuePairError::from)?;
                    posted += 1;
                }
                client.host.turn();
                done += writer.take(|_, _, _| Ok(()))?;
                stop_if_asked(&mut looks, interrupt)?;
            }
            let took = client.clock.now().since(start);
            Ok((count * LARGE) as f64 / took.as_secs_f64())
        })
    }
}

/// Now and then: an error if somebody pressed Ctrl-C.
fn stop_if_asked(looks: &mut u32, interrupt: &Interrupt) -> Result<(), PairError> {
    *looks = looks.wrapping_add(1);
    if looks.is_multiple_of(4096) && interrupt.is_set() {
        return Err(PairError::Interrupted);
    }
    Ok(())
}

impl End {
    fn send_all(
        &mut self,
        client: &mut Client,
        (warm_up, count): (u64, u64),
        seen: &Seen,
        interrupt: &Interrupt,
    ) -> Result<Latencies, PairError> {
        let (mut latencies, mut looks) = (Latencies::new(), 0);
        for number in 1..=warm_up + count {
            let begin = client.clock.now() + pause(number);
            while client.clock.now() < begin {
                self.look(client)?;
            }
            let start = client.clock.now();
            self.send(0, number)?;
            while seen.number.load(Acquire) != number {
                if seen.wrong.load(Relaxed) > 0 {
                    return Ok(latencies);
                }
                self.look(client)?;
                stop_if_asked(&mut looks, interrupt)?;
            }
            if number > warm_up {
                let at = Instant::from_nanos(seen.at.load(Relaxed));
                latencies.record(at.since(start));
            }
        }
        Ok(latencies)
    }

    /// Turns the engine once and takes completions of SENDs.
    fn look(&mut self, client: &mut Client) -> Result<(), PairError> {
        client.host.turn();
        self.take(|_, _, _| Ok(()))?;
        Ok(())
    }

    fn call_all(
        &mut self,
        client: &mut Client,
        (warm_up, count): (u64, u64),
        interrupt: &Interrupt,
    ) -> Result<f64, PairError> {
        let (mut done, mut wrong, mut begun, mut looks) = (0, 0, 0_u64, 0);
        let last = warm_up + count;
        let mut numbers = vec![0; self.qps.len()];
        // Calls of one queue pair have numbers one behind the other.
        let call = |end: &mut Self, of: usize, begun: &mut u64, numbers: &mut [u64]| {
            *begun += 1;
            numbers[of] += 1;
            (0..SENDS_PER_CALL).try_for_each(|_| end.send(of, numbers[of]))
        };
        for of in 0..self.qps.len() {
            call(self, of, &mut begun, &mut numbers)?;
        }
        let mut start = client.clock.now();
        while done < begun {
            client.host.turn();
            self.take(|end, of, number| {
                wrong += u64::from(number != numbers[of]);
                done += 1;
                if done == warm_up {
                    start = client.clock.now();
                }
                if begun < last { call(end, of, &mut begun, &mut numbers) } else { Ok(()) }
            })?;
            stop_if_asked(&mut looks, interrupt)?;
        }
        let took = client.clock.now().since(start);
        match wrong {
            0 => Ok((done - warm_up) as f64 / took.as_secs_f64()),
            wrong => Err(PairError::WrongMessages { wrong, messages: done }),
        }
    }
}
