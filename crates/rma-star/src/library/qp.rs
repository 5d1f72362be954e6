//! Queue pairs, as their application has them: `struct ibv_qp`.

use rma_shm::Forked;
use thiserror::Error;

use super::{
    negotiate::{Part, Role},
    slots::Queue,
};
use crate::{
    names::Side,
    verbs::{WcStatus, WqeOp},
};

/// Names a queue pair of one `Verbs`. Of no use once it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qp {
    pub(super) index: u32,
    pub(super) nonce: u32,
}

/// The state of a queue pair: `enum ibv_qp_state`, as far as there is such a thing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// It has no connection yet: the set-up has not begun, or is under way.
    Init,
    /// It may be posted to (`IBV_QPS_RTS`).
    Ready,
    /// The connection has failed or was closed, or was never made. What is posted is, or will be,
    /// flushed.
    Error,
}

/// The settings that a queue pair is made with: `struct ibv_qp_init_attr`.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// The side of the connection that this host takes. Default: [`Role::Auto`].
    pub role: Role,
    /// How many work requests the send queue has, 1 to [`QpConfig::DEPTH_MAX`]. Default: 128.
    pub send_depth: u16,
    /// The same of the receive queue. Default: 128.
    pub recv_depth: u16,
}

impl QpConfig {
    /// The most work requests of one queue.
    pub const DEPTH_MAX: u16 = 1 << 14;
}

impl Default for QpConfig {
    fn default() -> Self {
        Self { role: Role::Auto, send_depth: 128, recv_depth: 128 }
    }
}

/// The reason why no change of roles was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The queue pair was destroyed, or is of another portal.
    #[error(
        "this portal has no such queue pair: it was closed, or is another portal's; create one"
    )]
    NoSuchQp,
    /// The connection is not set up yet, or has failed.
    #[error(
        "the queue pair has no ready connection; wait until its state is QpState::Ready, then ask \
         again"
    )]
    NotReady,
    /// Both sides are stateful (RC): there are no roles to change.
    #[error(
        "both sides of the connection are stateful, so there are no roles to change; connect \
         with another role"
    )]
    BothStateful,
    /// Its roles change already.
    #[error("the roles of the connection are changing already; wait for the end of that change")]
    UnderWay,
    /// The engine does not take what is posted: it stands still. To be tried again.
    #[error(
        "the engine has not taken earlier posts: it stands still, or has ended; try again later"
    )]
    EngineStalled,
    /// The portal is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The description of a queue pair: `ibv_query_qp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// The queue pair's state.
    pub state: QpState,
    /// Whether this host is the stateful side of its connection. `None` if that is not decided.
    pub is_stateful: Option<bool>,
    /// Whether its roles change: of the stateful side, from when this host has asked for it; of the
    /// stateless side, from when the peer has handed the connection over. What comes of it shows in
    /// `is_stateful`.
    pub is_switching: bool,
}

/// The queue that most ops are posted to.
pub(super) const SEND: usize = 0;
/// That of RECVs.
pub(super) const RECV: usize = 1;

/// The queue of an op.
pub(super) const fn queue_of(op: WqeOp) -> usize {
    if op.is_recv() { RECV } else { SEND }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no queue pair.
    Free,
    /// Nothing has been done about a connection.
    Init(Role),
    /// The peer has been offered one, with this wish.
    Offered(Role),
    /// The peer's offer is answered, as the stateful side: its Confirm has the key.
    Agreed,
    /// The engine was told to open it.
    Opening,
    /// The engine has opened it; the peer has not.
    Opened,
    /// The stateless side tells its initial state, and has not heard of the stateful one.
    Introducing {
        /// How often it was told.
        tries: u8,
    },
    /// Work may be posted.
    Ready {
        /// Of the stateless side: how often something was posted again since the peer was heard of.
        tries: u8,
        /// The peer's acknowledgements, modulo 2^8, when that was last looked at.
        heard: u8,
    },
    /// Its roles have changed, or are about to, and its work requests must be posted anew: new ones
    /// wait behind them.
    Moving {
        /// The engine was asked to take the connection over, and has not answered.
        is_asked: bool,
    },
    /// It has failed, or is closed: the engine was told so, and has not answered.
    Failing(WcStatus),
    /// The engine has closed it. What the stateless side has sent or was sent may still be on its
    /// way.
    Dying(WcStatus),
    /// All work requests have been flushed.
    Over,
}

/// The flags of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// This host is the stateful side, or one of two.
    pub(super) const IS_STATEFUL: Self = Self(1);
    /// The application has closed it: it is forgotten when all is flushed.
    pub(super) const IS_CLOSED: Self = Self(2);
    /// The engine must be told to close it, when it takes posts again.
    pub(super) const CLOSE_IS_DUE: Self = Self(4);
    /// The peer's Offer was answered; otherwise the Offer was this host's. Only until work may be
    /// posted.
    pub(super) const IS_ANSWERER: Self = Self(8);
    /// There is a message for the peer's library.
    pub(super) const MESSAGE_IS_DUE: Self = Self(16);
    /// Both sides are stateful.
    pub(super) const IS_RC: Self = Self(128);
    /// A work request of the send queue, or of the receive queue, has failed.
    pub(super) const HAS_FAILED: [Self; 2] = [Self(32), Self(64)];
    /// Of the stateful side: it has asked for a change of roles. Of the stateless one: it has
    /// agreed to that of the number that its record has. Once work may be posted: until then the
    /// same bit says who has answered.
    pub(super) const IS_SWITCHING: Self = Self::IS_ANSWERER;

    pub(super) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(super) const fn set(&mut self, flag: Self) {
        self.0 |= flag.0;
    }

    /// It is so, or it is not.
    pub(super) const fn put(&mut self, flag: Self, is_so: bool) {
        self.0 = if is_so { self.0 | flag.0 } else { self.0 & !flag.0 };
    }

    /// It is no more so. Whether it was.
    pub(super) const fn take(&mut self, flag: Self) -> bool {
        let had = self.has(flag);
        self.0 &= !flag.0;
        had
    }
}

/// All that the library keeps of a queue pair, but for its timer: 36 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) queues: [Queue; 2],
    pub(super) depths: [u16; 2],
    pub(super) cqs: [u16; 2],
    /// The present use of this row; the last use, if the row is free. Never used again.
    pub(super) nonce: u32,
    /// Low halves of the sequences that the next work requests had when the timer was set: those
    /// before have been under way for as long as it. When roles change: what is before was posted
    /// anew. Until there is work: the nonce of the offer that is answered.
    pub(super) marks: [u16; 2],
    pub(super) phase: Phase,
    pub(super) flags: Flags,
}

impl Row {
    pub(super) const FREE: Self = Self {
        queues: [Queue::EMPTY; 2],
        depths: [0; 2],
        cqs: [0; 2],
        nonce: 0,
        marks: [0; 2],
        phase: Phase::Free,
        flags: Flags::NONE,
    };

    pub(super) const fn is_stateful(&self) -> bool {
        self.flags.has(Flags::IS_STATEFUL)
    }

    /// Returns the part of this host, if it is decided.
    pub(super) const fn part(&self) -> Part {
        if self.flags.has(Flags::IS_RC) {
            Part::Rc
        } else if self.is_stateful() {
            Part::Of(Side::Stateful)
        } else {
            Part::Of(Side::Stateless)
        }
    }

    /// Whether this is the stateful side and has asked for a change of roles, of which nothing has
    /// come yet. (A stateless side that has agreed to one waits for nothing: its peer may not have
    /// heard of that, and have given up.)
    pub(super) const fn is_switching(&self) -> bool {
        let is_at_work = matches!(self.phase, Phase::Ready { .. }) && self.is_stateful();
        is_at_work && self.flags.has(Flags::IS_SWITCHING)
    }

    /// Whether no work request of either queue is outstanding.
    pub(super) const fn is_idle(&self) -> bool {
        self.queues[SEND].is_empty() && self.queues[RECV].is_empty()
    }

    pub(super) const fn peer_nonce(&self) -> u32 {
        (self.marks[0] as u32) << 16 | self.marks[1] as u32
    }

    pub(super) const fn set_peer_nonce(&mut self, nonce: u32) {
        self.marks = [(nonce >> 16) as u16, nonce as u16];
    }

    /// Marks everything that was posted until now.
    pub(super) fn mark(&mut self) {
        self.marks = self.queues.map(|queue| queue.next as u16);
    }
}

impl Row {
    /// Of a free row: the next one that is free.
    pub(super) const fn next_free(&self) -> u32 {
        self.queues[SEND].next
    }

    pub(super) const fn set_next_free(&mut self, next: u32) {
        self.queues[SEND].next = next;
    }
}
