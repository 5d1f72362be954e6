//! The application's side of StaR: what verbs call a context, with queue pairs, completion queues
//! and work requests (§III-B; the paper extends libibverbs).
//!
//! A [`Verbs`] is the owner of one [portal](crate::portal), whose other end an engine has. It posts
//! what the application asks for, and gives completions in the order in which their work requests
//! were posted. For connections of which this host is the stateless side it does what needs memory
//! for each connection: it numbers work requests, posts again what the stateful side has not taken,
//! asks after peers that are silent, and ends connections with those that are gone (§III-C2).
//!
//! It does no I/O and reads no clock: time is an argument, by the engine's clock. Call
//! [`Verbs::poll`] when the engine has rung, and at [`Verbs::poll_timeout`]. No engine's code is in
//! here.
//!
//! | module | what it does |
//! |---|---|
//! | this | makes queue pairs and completion queues |
//! | `post` | posts work requests |
//! | `reports` | takes what the engine reports; ends connections, and flushes |
//! | `due` | what is due by time |
//! | `connect`, `negotiate`, `terms` | sets connections up |
//! | `roles`, `rebalance` | change roles during a connection |
//! | `qp`, `slots`, `cq`, `timers`, `wr`, `settings` | what is kept, and what applications see |
//!
//! Invariants: each work request that was posted completes exactly once, whatever the engine
//! reports; those of a queue in posting order, and after one that failed all others are flushed. A
//! completion has always room in its queue. Of a stateless side's connection, failures are told
//! only when nothing that was on its way can have effect any more (S2). What an application asks
//! for too much of is an error, and nothing has happened then. [`Verbs::memory`] says what all this
//! takes (S4).
//!
//! # Example
//!
//! Both ends of a connection, each with a `Verbs`, exchange three messages over a channel that
//! keeps secrets. How they are carried is up to their applications:
//!
//! ```
//! use rma_core::{addr::HostAddr, time::Instant};
//! use rma_star::{
//!     library::{QpConfig, QpState, Role, Verbs, VerbsConfig, VerbsPlace},
//!     names::PdId,
//!     portal::portal,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (application, _engine) = portal(64, 4)?;
//! let place = VerbsPlace::new(0, HostAddr::from([192, 0, 2, 1]), 1472);
//! let mut verbs = Verbs::new(application, place, VerbsConfig::default());
//! let cq = verbs.create_cq(128);
//! let config = QpConfig { role: Role::Stateless, ..QpConfig::default() };
//! let qp = verbs.create_qp(PdId(1), cq, cq, config)?;
//!
//! let now = Instant::ZERO;
//! verbs.connect(now, qp)?;
//! let offer = verbs.poll_message(now, qp).expect("the offer is the first message");
//! // The peer's library takes it, and its application brings back the answer:
//! // `verbs.handle_message(now, qp, &answer)?`, and so on until the queue pair is ready.
//! assert_eq!(verbs.state(qp), Some(QpState::Init));
//! # assert_eq!(offer.len(), 68);
//! # Ok(())
//! # }
//! ```

mod connect;
mod cq;
mod due;
mod negotiate;
mod post;
mod qp;
mod rebalance;
mod reports;
mod roles;
mod settings;
mod slots;
mod terms;
#[cfg(test)]
mod tests;
mod timers;
mod wr;

use arrayvec::ArrayVec;
use rma_core::{addr::HostAddr, time::Instant};
use rma_shm::Forked;
use thiserror::Error;

use crate::{
    names::PdId,
    portal::{QpRecord, StarPortal, StarPortalMemory},
};
pub use cq::CqId;
pub use negotiate::{Load, Role, RolesClash};
pub use qp::{Qp, QpConfig, QpInfo, QpState, SwitchError};
pub use settings::{VerbsConfig, VerbsPlace};
pub use terms::{ConnectError, TermsError};
pub use wr::{Mr, PostError, RecvWr, Remote, SendWr, Sge, Wc};

use cq::Cq;
use qp::{Flags, Phase, Row};
use settings::TICKS;
use slots::Slots;
use timers::Wheel;

/// The most completion queues of one [`Verbs`].
const CQS_MAX: usize = 1 << 16;

/// The most connections that are being given away at a time, unless an application wants it.
const GIVEN_AT_A_TIME: usize = 8;

/// No queue pair.
const NONE: u32 = u32::MAX;

/// The reason why a queue pair was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// There are as many queue pairs as the portal has room for, or their numbers are used up.
    #[error("all {qps} queue pairs of the portal are in use")]
    TableFull {
        /// How many there can be.
        qps: u32,
    },
    /// There is no such completion queue.
    #[error("there is no {0:?}")]
    NoSuchCq(CqId),
    /// A queue that is empty or too long.
    #[error("a queue of {depth}: it must be from 1 to {max}")]
    Depth {
        /// How long it was to be.
        depth: u16,
        /// How long it may be.
        max: u16,
    },
    /// The portal is that of the process which this one was forked from.
    #[error(transparent)]
    Forked(#[from] Forked),
}

/// The memory that a [`Verbs`] takes, in bytes (S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbsMemory {
    /// For each queue pair of the portal, with its words and its record there: at most 128.
    pub per_qp: usize,
    /// For each slot of the portal, with its guard word there: at most 64.
    pub per_work_request: usize,
    /// For each place of a completion queue.
    pub per_completion: usize,
    /// Whatever there is: the wheel of timers, and this.
    pub fixed: usize,
    /// The rings to and from the engine, and their labels, for all slots and queue pairs together.
    pub rings: usize,
}

/// The application's side of StaR, over one portal. See the [module](self).
#[derive(Debug)]
pub struct Verbs {
    portal: StarPortal,
    place: VerbsPlace,
    config: VerbsConfig,
    slots: Slots,
    rows: Box<[Row]>,
    /// The first row that is free; each names the next one.
    free_row: u32,
    wheel: Wheel,
    cqs: Vec<Cq>,
    /// Connections of which this is the stateful side.
    stateful: u32,
    /// The same of the host's other portals, as far as the application has told.
    stateful_elsewhere: u32,
    /// Connections that are being given away, and where the next is looked for.
    giving: ArrayVec<u32, GIVEN_AT_A_TIME>,
    next_look: u32,
    strange_reports: u64,
    ends: u64,
}

impl Verbs {
    /// Over `portal`, which no other has. All memory but that of completion queues is allocated
    /// here.
    #[must_use]
    pub fn new(portal: StarPortal, place: VerbsPlace, config: VerbsConfig) -> Self {
        let (slots, qps) = (portal.memory().slots(), portal.memory().qps());
        let mut rows: Box<[Row]> = vec![Row::FREE; qps as usize].into();
        for (at, row) in rows.iter_mut().enumerate() {
            row.set_next_free(if at + 1 < qps as usize { at as u32 + 1 } else { NONE });
        }
        Self {
            slots: Slots::new(slots),
            free_row: if qps > 0 { 0 } else { NONE },
            rows,
            wheel: Wheel::new(qps, config.repost_timeout / TICKS),
            cqs: Vec::new(),
            stateful: 0,
            stateful_elsewhere: 0,
            giving: ArrayVec::new(),
            next_look: 0,
            strange_reports: 0,
            ends: 0,
            portal,
            place,
            config,
        }
    }

    /// Returns the memory that the portal's two ends share: for the bell.
    #[must_use]
    pub const fn portal_memory(&self) -> &StarPortalMemory {
        self.portal.memory()
    }

    /// A completion queue for `capacity` completions, at least one: `ibv_create_cq`. It is there as
    /// long as this is.
    ///
    /// # Panics
    /// If there are 65,536 already.
    #[must_use]
    pub fn create_cq(&mut self, capacity: u32) -> CqId {
        assert!(self.cqs.len() < CQS_MAX, "no more than {CQS_MAX} completion queues");
        self.cqs.push(Cq::new(capacity.max(1)));
        CqId((self.cqs.len() - 1) as u16)
    }

    /// A queue pair: `ibv_create_qp`. `pd` is this portal's protection domain whose memory it uses.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_qp(
        &mut self,
        pd: PdId,
        send_cq: CqId,
        recv_cq: CqId,
        config: QpConfig,
    ) -> Result<Qp, CreateError> {
        let max = QpConfig::DEPTH_MAX;
        for depth in [config.send_depth, config.recv_depth] {
            if !(1..=max).contains(&depth) {
                return Err(CreateError::Depth { depth, max });
            }
        }
        for cq in [send_cq, recv_cq] {
            if usize::from(cq.0) >= self.cqs.len() {
                return Err(CreateError::NoSuchCq(cq));
            }
        }
        let index = self.free_row;
        let qps = self.rows.len() as u32;
        let row = self.rows.get_mut(index as usize).ok_or(CreateError::TableFull { qps })?;
        self.free_row = row.next_free();
        *row = Row {
            nonce: row.nonce + 1,
            depths: [config.send_depth, config.recv_depth],
            cqs: [send_cq.0, recv_cq.0],
            phase: Phase::Init(config.role),
            ..Row::FREE
        };
        let nonce = row.nonce;
        let record = QpRecord { local_pd: pd.0, nonce, ..self.empty_record() };
        self.portal.set_record(index, &record);
        Ok(Qp { index, nonce })
    }

    /// A record of no connection.
    fn empty_record(&self) -> QpRecord {
        QpRecord {
            peer: HostAddr::from_octets([0; 16]),
            pd: 0,
            local_pd: 0,
            peer_qpn: 0,
            nonce: 0,
            era: 0,
            packet_len_max: 0,
            z_clock: 0,
            key: [0; 16],
        }
    }

    /// Returns the portal's record of a queue pair.
    fn record(&self, index: u32) -> QpRecord {
        self.portal.memory().record(index).unwrap_or_else(|| self.empty_record())
    }

    /// The row of a queue pair that there is.
    fn row(&self, qp: Qp) -> Option<&Row> {
        let row = self.rows.get(qp.index as usize)?;
        let is_there = row.phase != Phase::Free && !row.flags.has(Flags::IS_CLOSED);
        (is_there && row.nonce == qp.nonce).then_some(row)
    }

    fn row_mut(&mut self, index: u32) -> &mut Row {
        &mut self.rows[index as usize]
    }

    /// Returns the state of a queue pair, which says what it can do: `ibv_query_qp`. `None` once it
    /// is closed.
    #[must_use]
    pub fn state(&self, qp: Qp) -> Option<QpState> {
        Some(match self.row(qp)?.phase {
            Phase::Introducing { .. } if self.is_heard(qp.index) => QpState::Ready,
            Phase::Free
            | Phase::Init(_)
            | Phase::Offered(_)
            | Phase::Agreed
            | Phase::Opening
            | Phase::Opened
            | Phase::Introducing { .. } => QpState::Init,
            Phase::Ready { .. } | Phase::Moving { .. } => QpState::Ready,
            Phase::Failing(_) | Phase::Dying(_) | Phase::Over => QpState::Error,
        })
    }

    /// Whether the stateful side has acknowledged the initial state.
    fn is_heard(&self, index: u32) -> bool {
        self.portal.memory().qp_word(index).heard != 0
    }

    /// Whether this host is the stateful side of a connection, or one of two stateful sides
    /// ([`Verbs::is_rc`]). `None` if that is not decided.
    #[must_use]
    pub fn is_stateful(&self, qp: Qp) -> Option<bool> {
        let row = self.row(qp)?;
        let is_decided = !matches!(row.phase, Phase::Init(_) | Phase::Offered(_));
        is_decided.then_some(row.is_stateful())
    }

    /// Whether both sides of a connection are stateful. `None` if that is not decided.
    #[must_use]
    pub fn is_rc(&self, qp: Qp) -> Option<bool> {
        let is_stateful = self.is_stateful(qp)?;
        Some(is_stateful && self.row(qp)?.flags.has(Flags::IS_RC))
    }

    /// The number of a queue pair at its host, as it is in completions.
    #[must_use]
    pub fn qpn(&self, qp: Qp) -> Option<u32> {
        self.row(qp).map(|_| self.place.qpn(qp.index))
    }

    /// Moves completions into `wcs`, first those that came first: `ibv_poll_cq`. Returns how many.
    /// There are new ones after [`Verbs::poll`].
    #[must_use]
    pub fn poll_cq(&mut self, cq: CqId, wcs: &mut [Wc]) -> usize {
        self.cqs.get_mut(usize::from(cq.0)).map_or(0, |cq| cq.poll(wcs))
    }

    /// How many completions a queue has, and will have of work requests that are outstanding. If
    /// none, waiting for one is of no use.
    #[must_use]
    pub fn unpolled(&self, cq: CqId) -> u32 {
        self.cqs.get(usize::from(cq.0)).map_or(0, Cq::unpolled)
    }

    /// Takes what the engine has reported, and does what is due. Returns how many reports there
    /// were: no more than the portal has room for.
    pub fn poll(&mut self, now: Instant) -> usize {
        let most = self.slots.len() as usize + 6 * self.rows.len();
        let mut taken = 0;
        while taken < most
            && let Some(report) = self.portal.poll()
        {
            self.take_report(now, report);
            taken += 1;
        }
        self.do_what_is_due(now);
        self.rebalance(now);
        taken
    }

    /// Whether the engine has reported something that [`Verbs::poll`] has not taken yet.
    #[must_use]
    pub fn has_report(&self) -> bool {
        self.portal.has_report()
    }

    /// Not before this time [`Verbs::poll`] has something to do, unless the engine reports or
    /// something is posted. It may have nothing to do at that time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.wheel.poll_timeout()
    }

    /// Ends a queue pair: `ibv_destroy_qp`. What is posted is flushed: its completions come all the
    /// same. The handle is of no further use. Closing a queue pair twice does nothing.
    pub fn close(&mut self, now: Instant, qp: Qp) {
        if self.row(qp).is_none() {
            return;
        }
        self.row_mut(qp.index).flags.set(Flags::IS_CLOSED);
        match self.rows[qp.index as usize].phase {
            Phase::Over => self.free(qp.index),
            _ => self.fail(now, qp.index, crate::verbs::WcStatus::WrFlushErr),
        }
    }

    /// Ends all queue pairs, for an application that goes and leaves its completions behind.
    pub fn close_all(&mut self, now: Instant) {
        for index in 0..self.rows.len() as u32 {
            let nonce = self.rows[index as usize].nonce;
            self.close(now, Qp { index, nonce });
        }
    }

    /// Grows when a queue pair fails, is closed, or is over: whoever waits for the end of one looks
    /// at its [state](Verbs::state) then.
    #[must_use]
    pub const fn ends(&self) -> u64 {
        self.ends
    }

    /// How many connections the host's other portals are the stateful side of: for the negotiation
    /// of roles. None, unless this is told.
    pub const fn note_stateful_elsewhere(&mut self, connections: u32) {
        self.stateful_elsewhere = connections;
    }

    /// How many reports of the engine made no sense, and were passed over.
    #[must_use]
    pub const fn strange_reports(&self) -> u64 {
        self.strange_reports
    }

    /// Returns the memory that it takes.
    #[must_use]
    pub fn memory(&self) -> VerbsMemory {
        const QP_IN_PORTAL: usize = 16 + 64;
        const GUARD_WORD: usize = 8;
        let (slots, qps) = (self.slots.len(), self.rows.len() as u32);
        let portal = StarPortalMemory::footprint(slots, qps).unwrap_or_default();
        let counted = qps as usize * QP_IN_PORTAL + slots as usize * GUARD_WORD;
        VerbsMemory {
            per_qp: size_of::<Row>() + Wheel::ENTRY_LEN + QP_IN_PORTAL,
            per_work_request: Slots::ENTRY_LEN,
            per_completion: size_of::<Wc>(),
            fixed: size_of::<Self>() + Wheel::FIXED_LEN,
            rings: portal - counted,
        }
    }
}
