//! Ops: type, class of service, and status (1RMA §4.3, §4.5, Table 3).

use core::fmt;

use crate::region::Permissions;

/// Makes [`OpType`] of its rows: doc, name, code, and what else the code asks of the type.
macro_rules! op_types {
    ($($(#[$doc:meta])* $op_type:ident = $code:literal: $shape:expr,)+) => {
        /// The kind of an op. Part of what K_d is derived from (§4.2), so a key for one kind opens
        /// no other.
        ///
        /// Exhaustive on purpose: a new kind must break every `match` in this workspace. Code that
        /// only asks what a kind is like asks its [`OpShape`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum OpType {
            $($(#[$doc])* $op_type = $code,)+
        }

        impl OpType {
            /// All types, in the order of their codes, which begin at 1.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$op_type),+];

            /// The op type that `code` stands for.
            #[must_use]
            #[inline]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$op_type),)+
                    _ => None,
                }
            }

            /// Returns the shape of ops of this type.
            #[must_use]
            #[inline]
            pub const fn shape(self) -> OpShape {
                match self {
                    $(Self::$op_type => $shape,)+
                }
            }
        }
    };
}

op_types! {
    /// One-sided read, two hops (§3.1).
    Read = 1: OpShape {
        name: "READ",
        hops: 2,
        moves: Moves::In,
        permission: Permissions::READ,
        transfer: Some(TransferType::Read),
        is_secret: false,
    },
    /// One-sided write, four hops (§5.1).
    Write = 2: OpShape {
        name: "WRITE",
        hops: 4,
        moves: Moves::Out,
        permission: Permissions::WRITE,
        transfer: Some(TransferType::Write),
        is_secret: false,
    },
    /// Installs a new region key K_r, four hops (§5.2).
    Rekey = 3: OpShape {
        name: "Rekey",
        hops: 4,
        moves: Moves::Out,
        permission: Permissions::REKEY,
        transfer: None,
        is_secret: true,
    },
    /// A message into a receive queue, four hops. Not in the paper, as all that follow: they are
    /// what the channels of "Efficient RDMA communication protocols" (its section 2) are built of.
    Send = 4: recorded("SEND", Permissions::SEND),
    /// A write that makes an event at its target, four hops.
    WriteWithImm = 5:
        recorded("WRITE_WITH_IMM", Permissions::WRITE.and(Permissions::NOTIFY)),
    /// An event without a message, four hops: the bufferless send.
    Notify = 6: recorded("NOTIFY", Permissions::NOTIFY),
    /// Replaces a word of a region if it has the expected value, four hops.
    CompareSwap = 7: recorded("COMPARE_SWAP", Permissions::ATOMIC),
    /// Adds to a word of a region, four hops.
    FetchAdd = 8: recorded("FETCH_ADD", Permissions::ATOMIC),
}

//= channels#2.1-grants-by-type
/// The shape of an op that its target records: four hops, as WRITE, and no part of a transfer.
const fn recorded(name: &'static str, permission: Permissions) -> OpShape {
    OpShape { name, hops: 4, moves: Moves::Out, permission, transfer: None, is_secret: false }
}

/// The shape of a type of op: all that the code asks of it but what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpShape {
    /// The op's name in the papers.
    pub name: &'static str,
    /// How many frames go there and back, one after the other, if all data fits into one. The NIC's
    /// timeout is for two of them.
    pub hops: u32,
    /// The direction in which its data moves.
    pub moves: Moves,
    /// The permission that the remote region must have.
    pub permission: Permissions,
    /// The transfer type that it can be a part of; `None` if its data is not the bytes of a region.
    pub transfer: Option<TransferType>,
    /// Whether its data is a K_r, which must not lie about.
    pub is_secret: bool,
}

impl OpShape {
    /// Whether it waits for the solicitation window of this host to enter service: its data comes
    /// here. Data that goes out waits for the window of the host that it goes to.
    #[must_use]
    #[inline]
    pub const fn needs_window(self) -> bool {
        matches!(self.moves, Moves::In)
    }
}

/// The direction in which the data of an op moves, seen from its initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moves {
    /// To the initiator, who changes nothing at the remote NIC.
    In,
    /// To the remote NIC.
    Out,
}

impl Moves {
    /// Both ways.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];

    /// The other way.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::In => Self::Out,
            Self::Out => Self::In,
        }
    }
}

impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "inbound",
            Self::Out => "outbound",
        })
    }
}

/// The ops that move the bytes of a region, and so can be parts of a transfer of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferType {
    /// From the remote region.
    Read,
    /// To the remote region.
    Write,
}

impl TransferType {
    /// The type of its ops.
    #[must_use]
    #[inline]
    pub const fn op_type(self) -> OpType {
        match self {
            Self::Read => OpType::Read,
            Self::Write => OpType::Write,
        }
    }
}

impl OpType {
    /// The op's name in the paper.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.shape().name
    }

    /// Whether there are ops of this type that their target records: of WRITE, the ordered ones.
    #[must_use]
    #[inline]
    pub const fn may_be_recorded(self) -> bool {
        !matches!(self, Self::Read | Self::Rekey)
    }

    /// Returns its index in [`OpType::ALL`].
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize - 1
    }
}

impl fmt::Display for OpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One of the two internal classes of service; each has a FIFO arbiter of its own (§4.3).
///
/// The paper does not name the classes; these names are ours. Neither starves the other: they take
/// turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ClassOfService {
    /// For small ops that somebody waits for.
    #[default]
    Latency = 0,
    /// For bulk transfers.
    Throughput = 1,
}

impl ClassOfService {
    /// Both classes, in the order of their codes.
    pub const ALL: [Self; 2] = [Self::Latency, Self::Throughput];

    /// The class that `code` stands for.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Latency),
            1 => Some(Self::Throughput),
            _ => None,
        }
    }

    /// The other class.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Latency => Self::Throughput,
            Self::Throughput => Self::Latency,
        }
    }
}

/// The status that an op ended with. Names and meanings are those of 1RMA Table 3, but for the last
/// four.
///
/// Exhaustive on purpose: a new status must break every `match` in this workspace.
//= 1rma#4.5-status-codes
//= type=deviation
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OpStatus {
    /// The op completed and all its data was transferred.
    Ok = 0,
    /// The command did not carry the right derived region key K_d, or no such region is registered:
    /// the responder does not tell which. Also what a rotated key looks like, and how an op ends
    /// whose region is rekeyed or deregistered while it is under way: a write may then have changed
    /// a part of its bytes.
    RemoteAuthenticationFailure = 1,
    /// The responder's inbound queue was at its configured depth, or a mutation waited too long
    /// there for the responder's own solicitation window. The initiator's window was refunded at
    /// once.
    Nack = 2,
    /// Not all data arrived in time: wrong address, partition, drop or congestion. A read may have
    /// changed some of the local memory. A mutation may have changed all, some or nothing of its
    /// target; it changes nothing from now on (§5.1).
    Timeout = 3,
    /// The op waited too long for room in the local solicitation window and never entered service.
    DispatchTimeout = 4,
    /// Not in the paper. The authenticated request reached outside the registered region.
    RemoteOutOfBounds = 5,
    /// Not in the paper. The region does not permit this type of op.
    RemotePermissionDenied = 6,
    /// Not in the paper. The local NIC refused the command: its fields made no sense, or its local
    /// region was not registered, too small, or another process's. Nothing was sent.
    InvalidCommand = 7,
    /// Not in the paper. No receive is posted at the queue that a SEND, NOTIFY or WRITE_WITH_IMM
    /// needs one of. The op was not applied. It is no sign of congestion: the application there is
    /// slow.
    RemoteNotReady = 8,
}

impl OpStatus {
    /// All statuses, in the order of their codes.
    pub const ALL: [Self; 9] = [
        Self::Ok,
        Self::RemoteAuthenticationFailure,
        Self::Nack,
        Self::Timeout,
        Self::DispatchTimeout,
        Self::RemoteOutOfBounds,
        Self::RemotePermissionDenied,
        Self::InvalidCommand,
        Self::RemoteNotReady,
    ];

    /// The status that `code` stands for.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The status in the words of the paper's Table 3.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::RemoteAuthenticationFailure => "REMOTE_AUTHENTICATION_FAILURE",
            Self::Nack => "NACK",
            Self::Timeout => "TIMEOUT",
            Self::DispatchTimeout => "DISPATCH_TIMEOUT",
            Self::RemoteOutOfBounds => "REMOTE_OUT_OF_BOUNDS",
            Self::RemotePermissionDenied => "REMOTE_PERMISSION_DENIED",
            Self::InvalidCommand => "INVALID_COMMAND",
            Self::RemoteNotReady => "REMOTE_NOT_READY",
        }
    }
}

impl fmt::Display for OpStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_others_mean_nothing() {
        for status in OpStatus::ALL {
            assert_eq!(OpStatus::from_code(status as u8), Some(status));
        }
        assert_eq!(OpStatus::from_code(9), None);
        for class in ClassOfService::ALL {
            assert_eq!(ClassOfService::from_code(class as u8), Some(class));
        }
        assert_eq!(ClassOfService::from_code(2), None);
        for (index, op_type) in OpType::ALL.into_iter().enumerate() {
            assert_eq!(OpType::from_code(op_type as u8), Some(op_type));
            assert_eq!(op_type.index(), index);
        }
        assert_eq!(OpType::from_code(9), None);
        assert_eq!(OpType::from_code(0), None);
    }

    #[test]
    fn a_type_that_a_transfer_is_made_of_says_so() {
        for transfer in [TransferType::Read, TransferType::Write] {
            assert_eq!(transfer.op_type().shape().transfer, Some(transfer));
        }
    }

    //= channels#2.1-grants-by-type
    //= type=test
    #[test]
    fn only_the_two_atomics_share_a_permission() {
        for (index, op_type) in OpType::ALL.into_iter().enumerate() {
            for other in &OpType::ALL[..index] {
                let both = (*other, op_type) == (OpType::CompareSwap, OpType::FetchAdd);
                assert_eq!(op_type.shape().permission == other.shape().permission, both);
            }
        }
    }
}
