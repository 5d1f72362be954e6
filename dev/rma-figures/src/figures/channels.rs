//! Messages through channels, over the ops that they are made of, and over the kernel's TCP.

use rma_bench::{
    client::Client,
    compare::{self, Transport},
    error::PairError,
    interrupt::Interrupt,
    latency::Latencies,
    one_way::{
        ByHand,
        Step::{self, *},
    },
    pair::{Pair, PairConfig, Place},
    pipelined,
    rates::{self, Measure},
};
use rma_xdp::{OpType, channel::Kind};

use super::{
    conditions::{CONDITIONS, MTU, lab},
    spec::Measured,
    turns::{MICROS, PER_S, Side, Stage, Turn},
};
use crate::channels::{Channel, Shape, fan_in::FanIn};

/// Rounds. An odd number has a middle one.
const ROUNDS: u64 = 11;
/// Messages or ops of a round: for nothing, and counted.
const COUNTS: (u64, u64) = (2_000, 200_000);
/// The same of what is one at a time.
const ALONE: (u64, u64) = (500, 10_000);
/// Ops under way at once.
const DEPTH: u16 = 8;
/// Senders that share a ring, and how many ops all of them have under way.
const SENDERS: u16 = 64;
const SLOTS: u16 = 64;
/// Sizes of messages that both rings are compared at, and how many of each in a round.
const SIZES: [(u32, u64); 5] =
    [(16, 100_000), (64, 100_000), (512, 50_000), (4096, 10_000), (32_768, 2_000)];

pub(super) const RING64: Side = Side {
    words: "messages of 64 B through a ring without zeroing, up to 8 ops under way, each compared",
    unit: PER_S,
    open: |stage| {
        let mut ring = Channel::open(stage.pair()?, Shape::small(Kind::RingWithoutZeroing, DEPTH))?;
        Ok(Box::new(move |stage, interrupt| ring.rate(stage.pair()?, 64, COUNTS, interrupt)))
    },
};

pub(super) const WRITES64: Side = Side {
    words: "WRITEs of 64 B, up to 8 under way",
    unit: PER_S,
    open: |stage| {
        let mut portal = stage.pair()?.client.host.portal(DEPTH)?;
        Ok(Box::new(move |stage, _| {
            let writes = |client: &mut Client| {
                pipelined::ops_per_second(client, &mut portal, OpType::Write, DEPTH, COUNTS)
            };
            stage.pair()?.run(writes)
        }))
    },
};

pub(super) fn zeroing(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let (mut worst, mut words) = (f64::INFINITY, Vec::new());
    for (size, count) in SIZES {
        let pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
        let shape = |kind| Shape { kind, len_max: size, room: 1 << 20, slots: 32 };
        let without = Channel::open(&pair, shape(Kind::RingWithoutZeroing))?;
        let with = Channel::open(&pair, shape(Kind::RingWithZeroing))?;
        // Dropped in this order.
        let mut shared = (without, with, pair);
        type Shared = (Channel, Channel, Pair);
        let counts = (count / 10, count);
        let len = size as usize;
        let mut one = |(it, _, pair): &mut Shared| it.rate(pair, len, counts, interrupt);
        let mut other = |(_, it, pair): &mut Shared| it.rate(pair, len, counts, interrupt);
        let measures: [&mut Measure<'_, Shared>; 2] = [&mut one, &mut other];
        let [without, with] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
        let ratio = without.over(&with);
        worst = worst.min(ratio);
        words.push(format!(
            "{size} B {:.4} over {:.4} M/s",
            without.median() * 1e-6,
            with.median() * 1e-6
        ));
    }
    let detail = format!(
        "messages a second through a ring without zeroing over one with it, the least of: {}; up to 32 ops under way; medians of \
         {ROUNDS} rounds in turns; veth MTU {MTU}, {CONDITIONS}",
        words.join(", "),
    );
    Ok(vec![Measured::new(worst, detail)])
}

/// Messages of each round of a kind: for nothing, and counted.
const EACH: (u64, u64) = (200, 4_000);

/// The channels, how many bytes a message has, and the ops that it waits for, one behind the other.
/// The others of a channel go beside: tails, unlocked slots, and offers of buffers, which a
/// receiver of indirect read has made before.
const BY_HAND: [(Kind, u32, &[Step]); 20] = [
    (Kind::SendRecvNormal, 64, &[Send]),
    (Kind::SendRecvShared, 64, &[Send]),
    (Kind::SendRecvBufferless, 8, &[Notify]),
    (Kind::WriteSlotDetached, 64, &[Write, Bell]),
    (Kind::WriteSlotInlined, 64, &[OrderedWrite]),
    (Kind::WriteSlotImmediate, 64, &[WriteWithImm]),
    (Kind::WriteSlotReserve, 64, &[CompareSwap, WriteWithImm]),
    (Kind::RingDetached, 64, &[Write, Bell]),
    (Kind::RingImmediate, 64, &[WriteWithImm]),
    (Kind::RingWithZeroing, 64, &[OrderedWrite]),
    (Kind::RingWithoutZeroing, 64, &[OrderedWrite]),
    (Kind::SharedRingImmediate, 64, &[FetchAdd, WriteWithImm]),
    (Kind::SharedRingWithZeroing, 64, &[FetchAdd, OrderedWrite]),
    (Kind::ReadSlotDetached, 64, &[ReadBell, ReadMessage]),
    (Kind::ReadSlotInlined, 64, &[ReadSlot]),
    (Kind::ReadSlotNotify, 64, &[Notify, ReadMessage]),
    (Kind::ReadSlotIndirect, 64, &[WriteWithImm]),
    (Kind::ReadRingDetached, 64, &[ReadBell, ReadMessage]),
    (Kind::ReadRingInlined, 64, &[ReadBell, ReadMessage]),
    (Kind::ReadRingNotify, 64, &[Notify, ReadMessage]),
];

fn p50(latencies: &Latencies) -> f64 {
    latencies.quantile_us(0.5)
}

pub(super) fn over_ops(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let (mut worst, mut words) = (0.0_f64, Vec::new());
    for (kind, size, steps) in BY_HAND {
        let mut pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
        let shape = Shape { len_max: size, ..Shape::small(kind, DEPTH) };
        let channel = Channel::open(&pair, shape)?;
        let by_hand = ByHand::open(&mut pair, steps, size)?;
        // Dropped in this order.
        let mut shared = (channel, by_hand, pair);
        type Shared = (Channel, ByHand, Pair);
        let len = size as usize;
        let mut by_channel = |(it, _, pair): &mut Shared| {
            it.one_way(pair, len, EACH, interrupt).map(|latencies| p50(&latencies))
        };
        let mut by_hand = |(_, it, pair): &mut Shared| {
            it.one_way(pair, EACH, interrupt).map(|latencies| p50(&latencies))
        };
        let measures: [&mut Measure<'_, Shared>; 2] = [&mut by_channel, &mut by_hand];
        let [channel, hand] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
        let ratio = channel.over(&hand);
        worst = worst.max(ratio);
        let (channel, hand) = (channel.median(), hand.median());
        words.push(format!("{kind} {ratio:.2} ({channel:.2} over {hand:.2} us)"));
    }
    let detail = format!(
        "p50 of one way through a channel over the ops that a message waits for, issued by hand one behind the other, until the \
         receiver has it, 64 B, bufferless 8 B; the worst of: {}; prefetching, and bells that wake, are not measured; medians of {ROUNDS} \
         rounds in turns; veth MTU {MTU}, {CONDITIONS}",
        words.join(", "),
    );
    Ok(vec![Measured::new(worst, detail)])
}

pub(super) const RPC64: Side = Side {
    words: "p50 of a request of 64 B and its answer through two rings without zeroing",
    unit: MICROS,
    open: |stage| {
        let mut ring = Channel::open(stage.pair()?, Shape::small(Kind::RingWithoutZeroing, DEPTH))?;
        Ok(Box::new(move |stage, interrupt| {
            ring.round_trips(stage.pair()?, 64, ALONE, interrupt).map(|latencies| p50(&latencies))
        }))
    },
};

pub(super) const TCP64: Side = Side {
    words: "there and back over kernel TCP, both sides spinning, in plaintext, on a veth pair without a program",
    unit: MICROS,
    open: |_| {
        Ok(Box::new(|stage, _| {
            let mut latencies = Latencies::new();
            latencies.add(&compare::ping_pong(stage.sockets()?, Transport::Tcp, 64, ALONE)?.times);
            Ok(p50(&latencies))
        }))
    },
};

/// So many senders of one host on a shared ring.
fn senders(stage: &mut Stage, senders: u16) -> Result<Box<Turn>, PairError> {
    let mut ring = FanIn::open(stage.pair()?, Kind::SharedRingWithZeroing, senders, 64, SLOTS)?;
    Ok(Box::new(move |stage, interrupt| ring.rate(stage.pair()?, COUNTS, interrupt)))
}

pub(super) const ALL_SENDERS: Side = Side {
    words: "messages of 64 B of 64 senders of one host through a shared ring with zeroing, up to 64 ops under way in all, each compared",
    unit: PER_S,
    open: |stage| senders(stage, SENDERS),
};

pub(super) const ONE_SENDER: Side =
    Side { words: "those of one sender", unit: PER_S, open: |stage| senders(stage, 1) };

pub(super) fn fan_in_memory(_: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
    let kind = Kind::SharedRingWithZeroing;
    let registered = |senders| FanIn::open(&pair, kind, senders, 64, SLOTS).map(|ring| ring.memory);
    let (all, one) = (registered(SENDERS)?, registered(1)?);
    let detail = format!("bytes that the receiver has registered: {all} and {one}");
    Ok(vec![Measured::new(all as f64 / one as f64, detail)])
}
