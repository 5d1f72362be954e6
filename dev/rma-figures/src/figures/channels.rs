//! Messages through channels, over the ops that they are made of, and over the kernel's TCP.

use rma_bench::{
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
use rma_xdp::{Portal, channel::Kind};

use super::{
    conditions::{CONDITIONS, MTU, lab, sockets},
    spec::Measured,
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

pub(super) fn ring64(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
    let ring = Channel::open(&pair, Shape::small(Kind::RingWithoutZeroing, DEPTH))?;
    let portal = pair.client.host.portal(DEPTH)?;
    // Dropped in this order.
    let mut shared = (ring, portal, pair);
    type Shared = (Channel, Portal, Pair);
    let mut messages = |(ring, _, pair): &mut Shared| ring.rate(pair, 64, COUNTS, interrupt);
    let mut writes = |(_, portal, pair): &mut Shared| {
        pair.run(|client| pipelined::writes_per_second(client, portal, DEPTH, COUNTS))
    };
    let measures: [&mut Measure<'_, Shared>; 2] = [&mut messages, &mut writes];
    let [messages, writes] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "messages of 64 B through a ring without zeroing {:.3} M/s, WRITEs of 64 B {:.3} M/s, up to {DEPTH} ops under way; \
         medians of {ROUNDS} rounds in turns; every message compared; veth MTU {MTU}, {CONDITIONS}",
        messages.median() * 1e-6,
        writes.median() * 1e-6,
    );
    let name = "ring64_rate_over_write64_rate";
    Ok(vec![Measured { name, value: messages.over(&writes), detail }])
}

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
    Ok(vec![Measured { name: "ring_without_over_with_zeroing", value: worst, detail }])
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
    Ok(vec![Measured { name: "channel64_over_ops", value: worst, detail }])
}

pub(super) fn rpc64(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let sockets = sockets()?;
    let pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
    let channel = Channel::open(&pair, Shape::small(Kind::RingWithoutZeroing, DEPTH))?;
    let mut shared = (channel, pair);
    type Shared = (Channel, Pair);
    let mut rpc = |(it, pair): &mut Shared| {
        it.round_trips(pair, 64, ALONE, interrupt).map(|latencies| p50(&latencies))
    };
    let mut tcp = |_: &mut Shared| {
        let mut latencies = Latencies::new();
        latencies.add(&compare::ping_pong(&sockets, Transport::Tcp, 64, ALONE)?.times);
        Ok(p50(&latencies))
    };
    let measures: [&mut Measure<'_, Shared>; 2] = [&mut rpc, &mut tcp];
    let [rpc, tcp] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "p50 of a request of 64 B and its answer through two rings without zeroing {:.2} us, there and back over kernel TCP, both \
         sides spinning, in plaintext, on a veth pair without a program {:.2} us; medians of {ROUNDS} rounds in turns; veth MTU \
         {MTU}, {CONDITIONS}",
        rpc.median(),
        tcp.median(),
    );
    Ok(vec![Measured { name: "rpc64_over_tcp", value: rpc.over(&tcp), detail }])
}

pub(super) fn fan_in(interrupt: &Interrupt) -> Result<Vec<Measured>, PairError> {
    let lab = lab()?;
    let pair = Pair::open(Place::Lab(&lab), &PairConfig::patient())?;
    let (one, all) = (FanIn::open(&pair, 1, 64, SLOTS)?, FanIn::open(&pair, SENDERS, 64, SLOTS)?);
    let memory = (all.memory, one.memory);
    // Dropped in this order.
    let mut shared = (one, all, pair);
    type Shared = (FanIn, FanIn, Pair);
    let mut alone = |(one, _, pair): &mut Shared| one.rate(pair, COUNTS, interrupt);
    let mut together = |(_, all, pair): &mut Shared| all.rate(pair, COUNTS, interrupt);
    let measures: [&mut Measure<'_, Shared>; 2] = [&mut together, &mut alone];
    let [together, alone] = rates::in_turns(&mut shared, measures, ROUNDS, interrupt)?;
    let detail = format!(
        "messages of 64 B through a shared ring with zeroing: {SENDERS} senders of one host {:.3} M/s, one sender {:.3} M/s, up to \
         {SLOTS} ops under way in all; medians of {ROUNDS} rounds in turns; every message compared; veth MTU {MTU}, {CONDITIONS}",
        together.median() * 1e-6,
        alone.median() * 1e-6,
    );
    let registered =
        format!("bytes that the receiver has registered: {} and {}", memory.0, memory.1);
    let ratio = memory.0 as f64 / memory.1 as f64;
    Ok(vec![
        Measured { name: "fanin64_rate_over_one", value: together.over(&alone), detail },
        Measured { name: "fanin64_memory_over_one", value: ratio, detail: registered },
    ])
}
