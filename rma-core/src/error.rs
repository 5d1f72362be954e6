//! Errors before an op exists, and the reasons why frames die (house rule: an op's outcome is data,
//! a dropped frame is a counter, a misuse is an error, a broken invariant is a panic).

use rma_shm::Forked;
use thiserror::Error;

use crate::{
    addr::{HostAddr, Pid},
    limits::{OP_SIZE_MAX, RECEIVES_MAX, REGION_LEN_MAX},
    op::{OpStatus, OpType},
    region::{Permissions, RegionId},
};

/// The reason why a command was refused before it became an op. Caused by the caller, never by the
/// network.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitError {
    /// All command slots of the portal are in use.
    #[error(
        "all {slots} command slots of this portal are in use; poll completions, or allocate a \
         portal with more slots"
    )]
    NoFreeCommandSlot {
        /// How many slots the portal has.
        slots: u16,
    },
    /// The engine has completed commands that it has not taken: it is broken, or is no engine.
    #[error(
        "the engine has completed commands that it never took, and there is no room for another; open the host anew"
    )]
    CommandsNotTaken,
    /// The op has no bytes, or more than one op may carry.
    #[error(
        "op size {op_size} is not in 1..={OP_SIZE_MAX} bytes; cut larger transfers into several ops"
    )]
    OpSize {
        /// The refused size.
        op_size: u32,
    },
    /// The op reaches outside the local region.
    #[error(
        "{op_size} bytes at offset {offset} do not fit into local region {region} of {region_len} bytes"
    )]
    LocalOutOfBounds {
        /// The local region.
        region: RegionId,
        /// Its length in bytes.
        region_len: u64,
        /// The refused offset.
        offset: u64,
        /// The op's size.
        op_size: u32,
    },
    /// An op is ordered or atomic, and not about whole words.
    #[error(
        "{op_size} bytes at remote offset {remote_offset} are not whole words; ordered and atomic ops need multiples of 8"
    )]
    Misaligned {
        /// The refused offset.
        remote_offset: u64,
        /// The op's size.
        op_size: u32,
    },
    /// There are no records of ops of this type.
    #[error("a {op_type} is not recorded, so it cannot be settled; read what it was to change")]
    NotRecorded {
        /// The type of the grant.
        op_type: OpType,
    },
    /// The local region is registered with another host of this process.
    #[error(
        "region {region} is registered with another host of this process; register one with the portal's host"
    )]
    RegionOfAnotherHost {
        /// The region.
        region: RegionId,
    },
    /// The grant was made for another process; the responder would refuse its key.
    #[error(
        "the grant is for PID {granted}, this portal's PID is {portal}; ask for a grant for {portal}"
    )]
    GrantForAnotherProcess {
        /// The grant's PID.
        granted: Pid,
        /// The portal's PID.
        portal: Pid,
    },
    /// The grant was made for another type of op; the responder would refuse its key.
    #[error("the grant is for {granted} and the op is a {wanted}; ask for a grant for {wanted}")]
    GrantForAnotherOpType {
        /// The grant's op type.
        granted: OpType,
        /// The op's type.
        wanted: OpType,
    },
    /// The grant was made for an address that this host does not have.
    #[error("the grant is for initiator {granted}, which is not an address of this host")]
    GrantForAnotherHost {
        /// The grant's initiator.
        granted: HostAddr,
    },
    /// The portal was made before a fork, by the parent.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The reason why a NIC refused a command that reached it. What an application writes into shared
/// memory is untrusted, so these are counted, and answered by a completion where the slot is known
/// to be free.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// The slot does not exist, or is not the issuing portal's.
    #[error("command slot {slot} is not one of this portal's")]
    ForeignSlot {
        /// The refused slot number.
        slot: u16,
    },
    /// The slot's op has not completed yet. That op is not disturbed.
    #[error("command slot {slot} was issued twice: its op has not completed yet")]
    SlotBusy {
        /// The refused slot number.
        slot: u16,
    },
}

/// The reason why a region could not be registered, or found.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegionError {
    /// The table has no free entry.
    #[error(
        "all {capacity} entries of the registered region table are in use; deregister a region, or start the host with a larger table"
    )]
    TableFull {
        /// How many entries the table has.
        capacity: usize,
    },
    /// A region must have at least one and at most [`REGION_LEN_MAX`] bytes.
    #[error(
        "a region of {len} bytes cannot be registered: the length must be in 1..={REGION_LEN_MAX}"
    )]
    Length {
        /// The refused length.
        len: u64,
    },
    /// No region of that name is registered.
    #[error("no region {region} is registered at this host")]
    NotRegistered {
        /// The name that names nothing.
        region: RegionId,
    },
    /// Another engine of this host has not taken the keys of earlier Rekeys yet.
    #[error(
        "region {region} is not rekeyed: another engine of this host has not taken the keys of earlier Rekeys; repeat it when that engine runs again"
    )]
    RekeysWait {
        /// The region, whose key is as it was.
        region: RegionId,
    },
    /// A receive queue can be sent to and rekeyed, and has no bytes to read, write or count with.
    #[error(
        "a receive queue may permit SEND, NOTIFY and REKEY, and no more: {permissions:?} has others"
    )]
    QueuePermissions {
        /// The refused permissions.
        permissions: Permissions,
    },
    /// The memory of a receive queue has room for all its buffers.
    #[error("the buffers of a receive queue need {needed} bytes of memory, and this has {len}")]
    QueueMemory {
        /// How many bytes they need.
        needed: usize,
        /// How many there are.
        len: usize,
    },
    /// A region may name a receive queue of its own process, as its events go there.
    #[error("region {queue} is not a receive queue of process {owner}; name one, or none")]
    NotOwnQueue {
        /// The queue that the region named.
        queue: RegionId,
        /// The region's owner.
        owner: Pid,
    },
}

/// The reason why a receive queue could not be made, or refused what its application asked of it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveQueueError {
    /// A queue without receives takes nothing; one with more is no use.
    #[error("a receive queue has 1 to {RECEIVES_MAX} receives, not {receives}")]
    Receives {
        /// The refused number.
        receives: u16,
    },
    /// No message is longer than an op.
    #[error("a receive's buffer has 0 to {OP_SIZE_MAX} bytes, not {buffer_len}")]
    BufferLen {
        /// The refused length.
        buffer_len: u32,
    },
    /// The queue has no receive of that number.
    #[error("there is no receive {number} in a queue of {receives}; post one below {receives}")]
    NoSuchReceive {
        /// The refused number.
        number: u16,
        /// How many receives the queue has.
        receives: u16,
    },
    /// The receive's event has not been polled.
    #[error("receive {number} is posted already; post it again when its event has been polled")]
    PostedAlready {
        /// The refused number.
        number: u16,
    },
    /// The engine takes no receives, though it has told of them: it is broken, or is no engine.
    #[error(
        "receive {number} cannot be posted: the engine has taken none of those in the ring; open the host anew"
    )]
    ReceivesNotTaken {
        /// The receive.
        number: u16,
    },
    /// The queue is the parent's of this process.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Only a SEND leaves a message in a buffer.
    #[error("a {op_type} leaves no message in a buffer; look at its immediate")]
    NoMessage {
        /// The event's type of op.
        op_type: OpType,
    },
    /// The message does not fit.
    #[error("a message of {len} bytes does not fit into {room}; bring a longer slice")]
    TooShort {
        /// The message's length.
        len: u32,
        /// How much room there was.
        room: usize,
    },
}

/// Makes [`DropReason`] of its rows: doc, name, and what the initiator is told, if it is.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $reason:ident $(=> $told:ident)?,)+) => {
        /// The reason why a received frame died. Each reason has a counter. Exhaustive, so that a
        /// new reason breaks every `match`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $reason,)+
        }

        impl DropReason {
            /// All reasons, in the order of their codes.
            pub const ALL: [Self; [$(stringify!($reason)),+].len()] = [$(Self::$reason),+];

            /// Returns the status that a refused request is answered with; `None` if nobody is
            /// told, as of all that is no request.
            #[must_use]
            pub const fn refused_with(self) -> Option<OpStatus> {
                match self {
                    $($(Self::$reason => Some(OpStatus::$told),)?)+
                    _ => None,
                }
            }
        }
    };
}

drop_reasons! {
    /// Shorter or longer than a frame of its type can be.
    Length,
    /// A version of the wire format that this NIC does not speak.
    Version,
    /// Behind as many frames as a packet may have.
    TooManyFrames,
    /// A frame type that does not exist.
    FrameType,
    /// A header field with a value that is not defined.
    Field,
    /// Sent to an address that is not this NIC's.
    NotForThisHost,
    /// A request whose RegionId names nothing.
    UnknownRegion => RemoteAuthenticationFailure,
    /// A request whose tag is wrong.
    RequestUnauthenticated => RemoteAuthenticationFailure,
    /// An authenticated request outside its region.
    RequestOutOfBounds => RemoteOutOfBounds,
    /// An authenticated request that the region does not permit.
    RequestNotPermitted => RemotePermissionDenied,
    /// An authenticated read that found the inbound queue of its class at its configured depth, and
    /// nobody who had more of it.
    InboundQueueFull => Nack,
    /// An authenticated read that found so much data before it in the inbound queue that its own
    /// would come too late (§6.1), and nobody who had more of it.
    InboundQueueTooLong => Nack,
    /// An authenticated mutation that found every entry of the pending-write table in use, and
    /// nobody who had more of them.
    PendingWritesFull => Nack,
    /// An answer for a slot that this NIC does not have.
    UnknownSlot,
    /// An answer for an op that has already completed, or never was.
    LateOrUnsolicited,
    /// An answer from another host than the op's.
    WrongResponder,
    /// A response or solicited data whose bytes have already arrived, or the request of a mutation
    /// that has; a response of a second answer to a read, which was not loaded in its turn with
    /// what has landed of the first; a request under an old key that was told so less than a
    /// timeout ago.
    Duplicate,
    /// An authenticated response, or solicited data, with bytes that the op did not ask for, or cut
    /// in a way that the wire format does not allow.
    OutsideOp,
    /// An answer (response, failure notice, solicitation, acknowledgement) whose tag is wrong.
    ResponseUnauthenticated,
    /// A failure notice or an acknowledgement with a status that may not come this way.
    NoticeStatus,
    /// A response to an op whose local region is no longer registered, or a solicitation of data
    /// from one.
    LocalRegionGone,
    /// A second solicitation of an op, as a duplicated or replayed request causes it. No data is
    /// sent for it.
    SolicitedTwice,
    /// A failure notice for a mutation whose data has been solicited: it can no longer be refused.
    NoticeAfterSolicitation,
    /// Solicited data for a pending write that does not exist, or is another op's.
    UnknownPendingWrite,
    /// Solicited data whose tag is wrong.
    DataUnauthenticated,
    /// Solicited data that came too late to be applied: its initiator may have given up (§5.1).
    DataLate,
    /// A request under one of the region's last keys; or a request or solicited data for a region
    /// that was rekeyed or deregistered after the request had been authenticated.
    OldKey => RemoteAuthenticationFailure,
    /// An authenticated mutation whose class had its share of the pending-write table in use.
    PendingWriteShareFull => Nack,
    /// An authenticated mutation that waited too long in the pending-write table for this host's
    /// solicitation window.
    NotSolicitedInTime => Nack,
    /// An authenticated mutation whose target has no free record for it.
    OutcomeRecordsFull => Nack,
    /// An authenticated mutation whose region has as many records in use as are free.
    OutcomeRecordShareFull => Nack,
    /// An authenticated SEND, NOTIFY or WRITE_WITH_IMM that found no receive posted.
    NoReceivePosted => RemoteNotReady,
    /// Solicited data of such an op that found none any longer. What comes of the op after that is
    /// counted here, too.
    NoReceiveLeft,
    /// A new key that another engine of this host has no room for, as it stands still: it changes
    /// nothing, as if it had been lost.
    RekeysWait,
}

/// The reason why a frame was not sent. Each reason has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NotSent {
    /// A failure notice under the reserved key: it has waited for a timeout, as there are more of
    /// its kind than their rate, or the rate is 0.
    NoticeRateLimited,
    /// A failure notice: too many of its kind waited, and it was the oldest of the initiators that
    /// had most.
    NoticeQueueFull,
}

impl NotSent {
    /// All reasons, in the order of their codes.
    pub const ALL: [Self; 2] = [Self::NoticeRateLimited, Self::NoticeQueueFull];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_listed_in_the_order_of_their_codes() {
        for (code, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, code);
        }
        for (code, reason) in NotSent::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, code);
        }
    }
}
