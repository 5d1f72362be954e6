//! The promises, broken: what a checker or the memory model can find wrong with a run.

use core::time::Duration;

use rma_core::{
    addr::HostAddr,
    error::CommandError,
    op::{ClassOfService, OpStatus},
    outcome::Verdict,
    region::RegionId,
    time::Instant,
};
use thiserror::Error;

use crate::net::frame::NodeId;

/// The turn that ops wait for, class by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To enter service, at the initiator.
    Service,
    /// For responses to a read.
    Response,
    /// For the solicitation of a mutation's data.
    Solicitation,
}

/// A promise that was not kept. Each one is a bug in the NIC, or in this crate.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// P1: the NIC completed what no command had asked for.
    #[error("P1: {node} completed slot {slot} with {status}, but no command was outstanding there")]
    CompletedUnasked {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The status.
        status: OpStatus,
    },
    /// P1: the NIC let an op run beyond its bound.
    #[error("P1: {node} has not completed slot {slot}, which was due at {due:?}")]
    Overdue {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The latest time that the configuration allows.
        due: Instant,
    },
    /// P1: a NIC has counted other ends of commands than it has told.
    #[error("P1: {node} has counted {counted} ops that ended with {status}, and told {seen}")]
    Sums {
        /// The initiator.
        node: NodeId,
        /// The status.
        status: OpStatus,
        /// How many its counters say.
        counted: u64,
        /// How many it has told.
        seen: u64,
    },
    /// P1: the NIC took a command into a slot that was in use.
    #[error("P1: {node} took a command into slot {slot}, whose op had not completed")]
    SlotTakenTwice {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
    },
    /// P1: the NIC refused a command for a reason that was not so.
    #[error("P1: {node} refused a command for slot {slot}, which is not so: {error}")]
    Refused {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The reason that was given.
        error: CommandError,
    },
    /// The delays in a completion are not those of the clock.
    #[error("{node} slot {slot}, {status}: delays {told:?}, but the clock says {measured:?}")]
    Delay {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The status.
        status: OpStatus,
        /// Issue delay and total delay in the completion.
        told: (Duration, Duration),
        /// The same by the clock.
        measured: (Duration, Duration),
    },
    /// An op completed OK before all its bytes had arrived, or shed after it entered service, and
    /// so on.
    #[error("{node} slot {slot} ended with {status}, which its frames do not explain")]
    Unexplained {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The status.
        status: OpStatus,
    },
    /// A completion says something else of how far its op got than was seen: whether data was sent,
    /// whether it may have changed anything, what its target calls it, or the answer to a SETTLE.
    #[error("{node} slot {slot}, {status}: what its completion says besides is not so")]
    Ending {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The status.
        status: OpStatus,
    },
    /// A SETTLE was answered with what is not so, or forgotten too early.
    #[error("{node} answered a SETTLE with {told}, and {known} is right")]
    Verdict {
        /// The target.
        node: NodeId,
        /// The verdict that it told.
        told: Verdict,
        /// The verdict that was seen.
        known: Verdict,
    },
    /// A recorded op was applied that must not be, or twice; or it was not, and says so.
    #[error("{node} op {number}, recorded, ended with {status:?}; applied: {applied}")]
    Recorded {
        /// The target.
        node: NodeId,
        /// How many commands were issued before it.
        number: u64,
        /// The status that it ended with, if it has.
        status: Option<OpStatus>,
        /// Whether it was applied.
        applied: bool,
    },
    /// A receive queue has no event for an op that was applied, or another one.
    #[error("a receive queue of {node} has not the events of the ops that were applied: {events}")]
    Event {
        /// The node of the queue.
        node: NodeId,
        /// How many events had not been read.
        events: usize,
    },
    /// REMOTE_NOT_READY where a receive was posted.
    #[error("{node} refused an op for want of a receive, and had {posted}, {bound} of them bound")]
    NotReady {
        /// The target.
        node: NodeId,
        /// Receives that were posted and not consumed.
        posted: usize,
        /// The most that can have been bound to ops.
        bound: usize,
    },
    /// Bytes of an ordered op were there before it was applied, or were not when it had been.
    #[error("byte {at} of board {board} of {node} is not as the ops that were applied left it")]
    Placed {
        /// The target.
        node: NodeId,
        /// The number of its board.
        board: u16,
        /// The first wrong byte.
        at: usize,
    },
    /// A read saw a byte that cannot have been there between its first word and its last.
    #[error(
        "{node} slot {slot}, {status}: byte {at} of a read was not there between its first word and its last"
    )]
    ReadOrder {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The status of the read.
        status: OpStatus,
        /// The first byte that it cannot have seen.
        at: usize,
    },
    /// P3: the NIC debits its window otherwise than by what is in service.
    #[error("P3: {node} debits {debited} bytes for {solicited} in service, window {window}")]
    Window {
        /// The initiator.
        node: NodeId,
        /// The amount by the NIC's word.
        debited: u32,
        /// The amount seen on the wire.
        solicited: u32,
        /// The solicitation window.
        window: u32,
    },
    /// P3: more payload was on its way to a node than it had solicited.
    #[error("P3: {bytes} solicited bytes are on their way to {node}, which allows {allowed}")]
    InFlight {
        /// The initiator.
        node: NodeId,
        /// Payload on its way.
        bytes: u64,
        /// The window, or what the copies of one request allow.
        allowed: u64,
    },
    /// P13. Mutations that were solicited a short while ago have more of the window than their
    /// share.
    #[error("P13: {node} has solicited {bytes} bytes for mutations, whose share is {share}")]
    Share {
        /// The responder.
        node: NodeId,
        /// The bytes that it has solicited for them.
        bytes: u32,
        /// Their share of the solicitation window.
        share: u32,
    },
    /// P13. A read waits for the window, and neither the host's own reads nor mutations that have
    /// just been solicited hold it.
    #[error(
        "P13: a read of {node} waits: of a window of {window} bytes reads hold {reads} and mutations {mutations}"
    )]
    Kept {
        /// The initiator.
        node: NodeId,
        /// The bytes of its reads in service.
        reads: u32,
        /// The bytes of mutations that have been solicited for no longer than they may while others
        /// wait.
        mutations: u32,
        /// The solicitation window.
        window: u32,
    },
    /// P4: a sender used an IV twice.
    #[error("P4: {sender} engine {engine} direction {direction} sent counter {counter} twice")]
    IvRepeated {
        /// The sending address.
        sender: HostAddr,
        /// The engine's number.
        engine: u16,
        /// The direction octet.
        direction: u8,
        /// The counter.
        counter: u64,
    },
    /// P5: a responder held more requests than its queue has places.
    #[error("P5: {node} holds {jobs} requests of one class, and its inbound queue has {depth}")]
    QueueGrew {
        /// The responder.
        node: NodeId,
        /// Requests accepted and not answered in full.
        jobs: usize,
        /// The configured depth.
        depth: u32,
    },
    /// P6: a NIC accepted a frame that was not as it was sealed.
    #[error("P6: {node} accepted a corrupted frame from {source_addr}")]
    CorruptedAccepted {
        /// The receiver.
        node: NodeId,
        /// The sender.
        source_addr: HostAddr,
    },
    /// P7: a NIC accepted data that its op had no use for.
    #[error("P7: {node} accepted a frame for slot {slot} that its op had no use for")]
    AcceptedTwice {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
    },
    /// P2. An op had been reported as failed when some of its data was applied.
    #[error(
        "P2: {node} applied data of slot {slot} of {initiator} after that op had been reported"
    )]
    AppliedLate {
        /// The responder.
        node: NodeId,
        /// The initiator.
        initiator: NodeId,
        /// Its command slot.
        slot: u16,
    },
    /// P2. A responder that did not run was still applying data when the op was reported as failed,
    /// and did not count it.
    #[error(
        "P2: data of slot {slot} of {node} was applied until after the op had failed, uncounted"
    )]
    SilentlyLate {
        /// The initiator.
        node: NodeId,
        /// Its command slot.
        slot: u16,
    },
    /// P2. A responder that was not stopped counted a late effect.
    #[error("P2: {node} counted a late effect, but it was not stopped while it applied data")]
    FalseAlarm {
        /// The responder.
        node: NodeId,
    },
    /// P10. A failure notice that answers no request that came, or one that it has answered before,
    /// or that is not bound to it, or that says something else than what became of it.
    #[error("P10: {node} sent {destination} a notice of {status}, and no request asks for it")]
    UnaskedNotice {
        /// The responder.
        node: NodeId,
        /// The destination.
        destination: HostAddr,
        /// The status in it.
        status: OpStatus,
    },
    /// P10. More failure notices under the reserved key than their rate allows: to strangers, or to
    /// those with old keys.
    #[error("P10: {node} sent more than {per_second} notices a second of one kind")]
    NoticesTooFast {
        /// The responder.
        node: NodeId,
        /// The configured rate.
        per_second: u32,
    },
    /// P10. Two notices within a timeout for one request under an old key.
    #[error("P10: {node} told one request twice within a timeout that its key is old")]
    ToldTwice {
        /// The responder.
        node: NodeId,
    },
    /// P10. A failure notice is not shorter than the request.
    #[error("P10: {node} answered a request of {cause_len} bytes with a notice of {len}")]
    Amplified {
        /// The responder.
        node: NodeId,
        /// Bytes of the notice.
        len: usize,
        /// Bytes of the request.
        cause_len: usize,
    },
    /// P11. Something was admitted, or applied, under a key that was no longer the region's.
    #[error("P11: {node} believed slot {slot} of {initiator}, whose key is no longer the region's")]
    OldKey {
        /// The responder.
        node: NodeId,
        /// The initiator.
        initiator: NodeId,
        /// Its command slot.
        slot: u16,
    },
    /// P11, P2. An engine had an older key of a region when a Rekey was acknowledged, or handled
    /// what it fetched after a new one was put on its way.
    #[error(
        "P11: {node} has an older key of region {region}, {}",
        if *.is_acknowledged { "and a Rekey was acknowledged" } else { "for what came later" }
    )]
    KeyBehind {
        /// The engine.
        node: NodeId,
        /// The region.
        region: RegionId,
        /// Whether a Rekey was acknowledged.
        is_acknowledged: bool,
    },
    /// P11. Something was refused as under an old key, and its key was the region's.
    #[error("P11: {node} refused data of slot {slot} of {initiator}, whose key is the region's")]
    NotOld {
        /// The responder.
        node: NodeId,
        /// The initiator.
        initiator: NodeId,
        /// Its command slot.
        slot: u16,
    },
    /// P11. A region's key is not the last that was installed.
    #[error("P11: a region of {node} has another key than the last that was installed")]
    WrongKey {
        /// The responder.
        node: NodeId,
    },
    /// Ops of one class waited while the other was served twice.
    #[error("{node} served the other class twice while ops of class {class:?} waited: {turn:?}")]
    Starved {
        /// The node.
        node: NodeId,
        /// The class that waited.
        class: ClassOfService,
        /// The turn that it waited for.
        turn: Turn,
    },
    /// An op of the latency class had begun, and not all of its data left in that turn.
    #[error(
        "{node} sent some data of slot {slot} of {initiator}, and then something else or nothing"
    )]
    Torn {
        /// The sender.
        node: NodeId,
        /// The initiator.
        initiator: NodeId,
        /// Its command slot.
        slot: u16,
    },
    /// A read was refused that would have been answered in time, or accepted too late (section
    /// 6.1).
    #[error("{node} had {jobs} reads and {bytes} B before one of which it said NACK: {nacked}")]
    Nacked {
        /// The responder.
        node: NodeId,
        /// Reads in the queue of its class.
        jobs: u32,
        /// Bytes of answers before it.
        bytes: u64,
        /// Whether it was refused.
        nacked: bool,
    },
    /// A NIC sent what no honest NIC sends: a frame that does not parse, from an address that is
    /// not its own, too long for its way, or an answer to nothing.
    #[error("{node} sent a frame of {len} bytes to {destination} that it should not have sent")]
    WrongFrame {
        /// The sender.
        node: NodeId,
        /// The destination.
        destination: HostAddr,
        /// Bytes of the frame.
        len: usize,
    },
    /// A device sent a packet of no frames or too many, of some that do not go the same way, or one
    /// that is longer than one of its ends takes.
    #[error("{node} sent {destination} a packet of {frames} frames, {len} B, that is none")]
    WrongPacket {
        /// The sender.
        node: NodeId,
        /// The destination.
        destination: HostAddr,
        /// How many frames are in it.
        frames: usize,
        /// Its bytes.
        len: usize,
    },
    /// P10: strangers got more packets than they sent.
    #[error("P10: {node} sent {destination}, where strangers are, more packets than came thence")]
    UnpaidPacket {
        /// The responder.
        node: NodeId,
        /// The destination.
        destination: HostAddr,
    },
    /// P6, P7. Memory is not what it must be.
    #[error("P6: {node} area {area}, {status}: byte {at} is wrong")]
    Memory {
        /// The node of the memory.
        node: NodeId,
        /// The command slot that the area is for, or the number of an area at a target.
        area: u16,
        /// The status of the op.
        status: OpStatus,
        /// The first wrong byte, from the start of the area.
        at: usize,
    },
    /// P2. Memory changed after the op had completed.
    #[error("P2: byte {at} of area {area} of {node} changed after its op had completed")]
    LateEffect {
        /// The node of the memory.
        node: NodeId,
        /// The command slot that the area is for, or the number of an area at a target.
        area: u16,
        /// The first wrong byte, from the start of the area.
        at: usize,
    },
    /// Memory that others only read has changed.
    #[error("byte {at} of a region of {node} has changed, and nobody may write to it")]
    SourceChanged {
        /// The responder.
        node: NodeId,
        /// The first wrong byte.
        at: usize,
    },
    /// The op was bound to end in another way.
    #[error("{node} slot {slot} ended with {status}: expected {expected}")]
    Status {
        /// The initiator.
        node: NodeId,
        /// The command slot.
        slot: u16,
        /// The status that it ended with.
        status: OpStatus,
        /// The status that it had to end with.
        expected: OpStatus,
    },
    /// The simulation does not come to rest.
    #[error("the simulation does not come to rest: {steps} events")]
    Restless {
        /// Events so far.
        steps: u64,
    },
}
