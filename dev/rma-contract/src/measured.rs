//! Table 2, measured: by virtual time, ops and registered bytes on an idle network, where each
//! frame takes one hop. What is measured has to be what the crate says of itself
//! ([`rma_channel::Kind::ours`]), and is shown beside the paper's row.

use rma_channel::{
    SendState,
    table::{Count, Growth, Mark, Ours},
};
use rma_core::{op::OpType, time::Instant};
use rma_sim::{
    hosts::{counts::Counts, options::NetworkOptions},
    net::frame::NodeId,
};

use super::{
    kinds::{Row, Settings},
    run::Run,
    simulated::World,
    stream::{Habit, Lens},
};

/// The hops of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hops {
    /// Until its receiver has it.
    pub delivered: u64,
    /// Until its sender knows of it, if it is told.
    pub done: Option<u64>,
}

/// The ops of many messages, one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Ops {
    messages: u64,
    send: u64,
    receive: u64,
    /// Ops that tell or ask how much room there is.
    flow_control: u64,
}

fn exact(row: &Row, len: u32, room: u64) -> (Run<World>, Settings) {
    let (settings, nodes) = row.settings(len, room, false);
    (Run::new(row, World::new(NetworkOptions::exact(nodes)), &settings), settings)
}

/// In how many hops a message comes that is sent while its receiver begins to look, and in how many
/// its sender knows of it.
pub fn hops(row: &Row, len: u32) -> Hops {
    let (mut run, settings) = exact(row, len, 4);
    let hop = run.world.network.options().link.delay.as_nanos() as u64;
    run.open(row, &settings, Lens::All(len), u64::from(row.into.is_none()));
    if row.into.is_some() {
        begin_to_look(&mut run);
    }
    let began = run.world.network.now();
    let hops = |at: Instant| {
        let nanos = at.since(began).as_nanos() as u64;
        assert_eq!(nanos % hop, 0, "{}: {nanos} ns are no hops", row.kind);
        nanos / hop
    };
    run.look();
    let (mut delivered, mut done) = (None, None);
    while !run.is_over() {
        run.step();
        // Where its receiver lends the buffer it is not sent at once.
        let now = run.world.network.now();
        let Some(sent) = run.streams[0].sent.first() else { continue };
        if sent.claimed > 0 && delivered.is_none() {
            delivered = Some(hops(now));
        }
        if sent.state == SendState::Accepted && done.is_none() {
            done = Some(hops(now));
        }
    }
    run.check_all_came();
    Hops { delivered: delivered.unwrap(), done }
}

/// A message must be sent to a receiver that reads: once it knows where to begin, while it begins
/// to look, if it does.
fn begin_to_look(run: &mut Run<World>) {
    let reads = |run: &Run<World>| run.world.network.counts(NodeId(1)).of(OpType::Read).issued;
    run.pass(SETTLED);
    let mut before = reads(run);
    // A kind that is notified does not.
    for _ in 0..8 {
        run.step();
        if core::mem::replace(&mut before, reads(run)) != before {
            break;
        }
    }
    run.streams[0].left = 1;
}

/// When a receiver that reads knows where to begin, and that it counts.
const SETTLED: core::time::Duration = core::time::Duration::from_millis(1);

/// Counts the ops that each end issues for messages of which the next is sent when the one before
/// is processed.
fn ops(row: &Row, len: u32) -> Ops {
    const MESSAGES: u64 = 1000;
    let (mut run, settings) = exact(row, len, 4);
    run.open(row, &settings, Lens::All(len), 0);
    run.pass(SETTLED);
    let nodes = [NodeId(0), NodeId(1)];
    let before = nodes.map(|node| *run.world.network.counts(node));
    for _ in 0..MESSAGES {
        run.streams[0].left = 1;
        run.finish();
    }
    run.check_all_came();
    let counts = |index: usize| run.world.network.counts(nodes[index]).since(&before[index]);
    let issued = |counts: Counts, flow: OpType| {
        let flow = counts.of(flow).issued;
        (counts.total().issued - flow, flow)
    };
    // A sender looks for room by READ; a receiver tells of it by WRITE.
    let (send, asked) = issued(counts(0), OpType::Read);
    let (receive, told) = issued(counts(1), OpType::Write);
    Ops { messages: MESSAGES, send, receive, flow_control: asked + told }
}

/// The op types that both ends issue together for messages, flow control included.
pub fn op_types(row: &Row) -> Vec<OpType> {
    let len = 64.min(row.longest).max(row.shortest);
    let (mut run, settings) = exact(row, len, 4);
    run.open(row, &settings, Lens::All(len), 0);
    run.pass(SETTLED);
    // Several times around what there is room for.
    for _ in 0..32 {
        run.streams[0].left = 1;
        run.finish();
    }
    let issued = |op: &OpType| {
        let of = |node| run.world.network.counts(node).of(*op).issued;
        of(NodeId(0)) + of(NodeId(1)) > 0
    };
    OpType::ALL.into_iter().filter(issued).collect()
}

/// How many bytes a receiver registers for so many senders, which it has one channel for if the
/// kind is for several, and else one each.
fn receiver_memory(row: &Row, senders: u16) -> u64 {
    let nodes = senders + 1;
    let receiver = NodeId(senders);
    let (settings, _) = row.settings(row.longest.min(1000), 16, false);
    let settings = Settings { receivers: vec![receiver], ..settings };
    let mut run = Run::new(row, World::new(NetworkOptions::exact(nodes)), &settings);
    let before = run.world.registered(receiver);
    // The application's memory for messages, which all channels use.
    let (open, one) = row.into.map_or((row.open, 0), |into| (into, u64::from(row.longest)));
    let froms: Vec<NodeId> = (0..senders).map(NodeId).collect();
    let froms = if row.senders > 1 {
        vec![froms]
    } else {
        froms.into_iter().map(|from| vec![from]).collect()
    };
    let mut lent = 0;
    for senders in froms {
        let ends = open(&mut run.world, row.kind, &Settings { senders, ..settings.clone() });
        lent += ends.receivers.iter().map(|(_, end)| end.lent_bytes()).sum::<u64>();
    }
    one + run.world.registered(receiver) - before - lent
}

/// How many bytes a sender registers for so many receivers, which it has one channel for if the
/// kind is for several, and else one each.
fn sender_memory(row: &Row, receivers: u16) -> u64 {
    let sender = NodeId(receivers);
    let (settings, _) = row.settings(row.longest.min(1000), 16, false);
    let settings = Settings { senders: vec![sender], ..settings };
    let mut run = Run::new(row, World::new(NetworkOptions::exact(receivers + 1)), &settings);
    let before = run.world.registered(sender);
    let tos: Vec<NodeId> = (0..receivers).map(NodeId).collect();
    let tos =
        if row.receivers > 1 { vec![tos] } else { tos.into_iter().map(|to| vec![to]).collect() };
    for receivers in tos {
        (row.open)(&mut run.world, row.kind, &Settings { receivers, ..settings.clone() });
    }
    run.world.registered(sender) - before
}

/// Measures the growth of one end's memory with the number of its peers: `of` so many. What it has
/// for each besides messages, such as a word that a tail is told from, is small.
fn growth(row: &Row, of: impl Fn(&Row, u16) -> u64) -> Growth {
    let [one, two, three, four] = [1, 2, 3, 4].map(|peers| of(row, peers));
    assert!(one > 0 || four == 0, "{}: {one} bytes for one peer", row.kind);
    let slope = |more: u64, peers: u64| more.saturating_sub(one) / (peers - 1);
    let slopes = [slope(two, 2), slope(three, 3), slope(four, 4)];
    assert!(slopes.iter().all(|&it| it == slopes[0]), "{}: a line: {slopes:?}", row.kind);
    if slopes[0] * 20 > one { Growth::Linear } else { Growth::Constant }
}

/// Whether more short messages than long ones have room.
fn variable(row: &Row) -> Mark {
    let longest = row.longest.min(1000);
    if row.shortest == longest || longest <= 8 {
        return Mark::Nothing;
    }
    let room = |len: u32| {
        let (mut run, settings) = exact(row, longest, 4);
        run.open(row, &settings, Lens::All(len), 200);
        run.set_habit(Habit::Idle);
        run.pass(core::time::Duration::from_millis(1));
        run.streams[0].sent.len()
    };
    if room(row.shortest.max(8)) > room(longest) { Mark::Yes } else { Mark::No }
}

/// The heading of [`measure`]'s table.
pub const COLUMNS: &str = "## channel | HRT | ours: delivered, done | Req | ours | flow control | B | Z | V, ours | 1:N, ours | N:1, ours | why";

/// Measures a kind and returns its row, as it is printed.
///
/// # Errors
/// The deviations from the crate's statements.
pub fn measure(row: &Row) -> Result<String, String> {
    let ours = row.kind.ours();
    let Ours { offer, done, reason } = ours;
    let paper = row.kind.paper();
    let name = row.kind;
    let must = |is_so: bool, what: &dyn Fn() -> String| {
        if is_so { Ok(()) } else { Err(format!("{name}: {}", what())) }
    };
    let lens = [8, 64, 4000].map(|len: u32| len.min(row.longest).max(row.shortest));
    let by_len = lens.map(|len| hops(row, len));
    for hops in by_len {
        let exactly = Count { or_more: false, ..offer.half_round_trips };
        let is_done = done.is_none() || hops.done == done.map(u64::from);
        let is_so = exactly.admits(hops.delivered) && is_done;
        must(is_so, &|| format!("{hops:?}, and {offer:?}, done in {done:?}"))?;
    }
    let Ops { messages, send, receive, flow_control } = ops(row, lens[1]);
    for (issued, expected) in [(send, offer.send_requests), (receive, offer.receive_requests)] {
        let is_exact = issued == messages * u64::from(expected.least);
        let is_more = expected.or_more && issued > messages * u64::from(expected.least);
        let what = || format!("{issued} for {messages} messages, not {expected}");
        must(is_exact || is_more, &what)?;
    }
    let memory = [growth(row, sender_memory), growth(row, receiver_memory)];
    let told = [ours.memory_of_sender(), offer.memory_of_receiver];
    must(memory == told, &|| format!("memory {memory:?}, not {told:?}"))?;
    let ([sender_memory, receiver_memory], variable) = (memory, variable(row));
    let told = offer.variable_size;
    must(variable == told, &|| format!("variable size {variable:?}, not {told:?}"))?;
    let requests = |count: u64| format!("{:.2}", count as f64 / messages as f64);
    let done = done.and(by_len[0].done).map_or("–".to_owned(), |done| done.to_string());
    Ok(format!(
        "{:>2} {:<44} | {:>3} | {:>3} {:>3} | {}/{} | {:>4}/{:<4} | {:>4} | {:>5} | {:>3} | {} {} | O(1) {} | {} {} | {}",
        name as u8,
        name.to_string(),
        paper.half_round_trips.to_string(),
        by_len[0].delivered,
        done,
        paper.send_requests,
        paper.receive_requests,
        requests(send),
        requests(receive),
        requests(flow_control),
        paper.blocking,
        paper.zero_copy_send.to_string() + "/" + &paper.zero_copy_receive.to_string(),
        paper.variable_size,
        variable,
        sender_memory,
        paper.memory_of_receiver,
        receiver_memory,
        if reason.is_empty() { "equal" } else { reason },
    ))
}
