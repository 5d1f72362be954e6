//! The two ends of a portal.

use rma_core::{
    portal::{Bell, Flag},
    tenant::TenantIndex,
};
use rma_shm::{Consumer, Full, Line, Producer, RingError};
use std::sync::Arc;

use super::{
    line::{Post, Report},
    memory::StarPortalMemory,
    record::QpRecord,
    words::{Guard, QpWord},
};
use crate::names::Taken;
use rma_shm::Mapping;

/// The application's end: it posts, and takes reports.
#[derive(Debug)]
pub struct StarPortal {
    posts: Producer,
    reports: Consumer,
    memory: StarPortalMemory,
    /// The bell that wakes the engine; `None` if it never sleeps.
    bell: Option<Bell>,
    /// The flag that tells the engine that posts are worth a look; `None` if it looks in every
    /// turn.
    flag: Option<Flag>,
}

/// The engine's end. It believes nothing that the other end says.
#[derive(Debug)]
pub struct StarPort {
    posts: Consumer,
    reports: Producer,
    memory: StarPortalMemory,
    /// A post that was taken and is not done with: the frame that it needs has no room yet.
    head: Option<(Post, Option<Line>)>,
    /// How many posts may still come to nothing in this turn.
    idle_left: u32,
    /// The bell that wakes the application's thread when it sleeps; `None` if it never does.
    sleeper: Option<Bell>,
    /// Whether there were reports since the application's thread was last looked after.
    given: bool,
    /// The flag that the application raises after posts; `None` if it has none.
    flag: Option<Flag>,
    /// Whether it is among those that wait for a frame.
    is_waiting: bool,
    /// The tenant of the host that the application is.
    tenant: TenantIndex,
    /// How many connections this host may be the stateful side of for the application.
    stateful_max: u32,
    /// How many it is.
    stateful: u32,
    /// Whether no further post is taken.
    is_closed: bool,
}

/// Posts of one portal that may come to nothing in one turn: the others wait for the next one, or
/// an application that posts nonsense without end would keep its engine from everybody else's work
/// (P9).
const IDLE_POSTS: u32 = 32;

/// Makes both ends of a portal for two threads of this process.
///
/// # Errors
/// If there cannot be so many slots and QPs.
pub fn portal(slots: u32, qps: u32) -> Result<(StarPortal, StarPort), RingError> {
    let mapping = Arc::new(Mapping::heap(StarPortalMemory::footprint(slots, qps)?));
    let memory =
        StarPortalMemory::format(&mapping, slots, qps).expect("a mapping of its footprint");
    Ok((StarPortal::new(memory.clone(), None), StarPort::new(memory)))
}

impl StarPortal {
    /// The application's end of `memory`, which is for one application and no other.
    #[must_use]
    pub fn new(memory: StarPortalMemory, bell: Option<Bell>) -> Self {
        let (posts, reports) =
            (memory.posts.clone().into_producer(), memory.reports.clone().into_consumer());
        Self { posts, reports, memory, bell, flag: None }
    }

    /// From now on posts raise `flag`, which the engine's end [has as well](StarPort::set_flag): it
    /// looks into this portal while it is in use, and not in every turn.
    pub fn set_flag(&mut self, flag: Flag) {
        self.flag = Some(flag);
    }

    /// Returns the memory that both ends share.
    #[must_use]
    pub const fn memory(&self) -> &StarPortalMemory {
        &self.memory
    }

    /// Posts, with data that is inline, and wakes the engine if it sleeps.
    ///
    /// # Errors
    /// [`Full`] if the engine has not taken enough of what was posted before. A slot that is posted
    /// once at a time always has room.
    pub fn post(&mut self, post: &Post, inline: Option<&Line>) -> Result<(), Full> {
        let line = post.to_line();
        match inline {
            None => self.posts.push(&line)?,
            Some(second) => {
                self.posts.push_pair_unpublished(&line, second)?;
                self.posts.publish();
            }
        }
        if let Some(flag) = &self.flag {
            flag.raise();
        }
        if let Some(bell) = &self.bell {
            // One fence for both: the flag's.
            let is_asleep = match self.flag {
                Some(_) => bell.doorbell.needs_ring_after_fence(),
                None => bell.doorbell.needs_ring(),
            };
            if is_asleep {
                bell.wake.wake();
            }
        }
        Ok(())
    }

    /// Writes what the engine must know of a QP's connection. Before the post that needs it.
    pub fn set_record(&mut self, qp: u32, record: &QpRecord) {
        self.memory.set_record(qp, record);
    }

    /// Whether there is a report. Always looks at what the engine has written.
    #[must_use]
    pub fn has_report(&self) -> bool {
        !self.reports.is_empty()
    }

    /// The next report. One that says nothing that there is is left out.
    pub fn poll(&mut self) -> Option<Report> {
        loop {
            let line = self.reports.pop()?;
            if let Some(report) = Report::from_line(&line) {
                return Some(report);
            }
        }
    }
}

impl StarPort {
    /// The engine's end of `memory`.
    #[must_use]
    pub fn new(memory: StarPortalMemory) -> Self {
        let (posts, reports) =
            (memory.posts.clone().into_consumer(), memory.reports.clone().into_producer());
        Self {
            posts,
            reports,
            memory,
            head: None,
            idle_left: IDLE_POSTS,
            sleeper: None,
            given: false,
            flag: None,
            is_waiting: false,
            tenant: TenantIndex::HOST,
            stateful_max: u32::MAX,
            stateful: 0,
            is_closed: false,
        }
    }

    /// The application raises `flag` after posts: this portal need not be looked into otherwise.
    /// Before the engine [serves it](crate::service::Star::attach).
    pub fn set_flag(&mut self, flag: Flag) {
        self.flag = Some(flag);
    }

    /// Returns the flag that the application raises after posts, if it does.
    pub(crate) const fn flag(&self) -> Option<&Flag> {
        self.flag.as_ref()
    }

    /// Notes whether it is among those that wait for a frame. Whether that is new.
    pub(crate) const fn set_waiting(&mut self, is_waiting: bool) -> bool {
        core::mem::replace(&mut self.is_waiting, is_waiting) != is_waiting
    }

    /// The application is this tenant of the host, for whom its frames go.
    pub const fn set_tenant(&mut self, tenant: TenantIndex) {
        self.tenant = tenant;
    }

    /// Returns the tenant of the host that the application is.
    pub(crate) const fn tenant(&self) -> TenantIndex {
        self.tenant
    }

    /// The application may have no more than `most` connections of which this host is the stateful
    /// side. Without this: as many as there is room for. What it may have of the table of work
    /// requests follows from it.
    pub const fn set_stateful_max(&mut self, most: u32) {
        self.stateful_max = most;
    }

    /// How many connections this host may be the stateful side of for the application.
    pub(crate) const fn stateful_max(&self) -> u32 {
        self.stateful_max
    }

    /// Whether one more connection may begin of which this host is the stateful side.
    pub(crate) const fn may_open_stateful(&self) -> bool {
        self.stateful < self.stateful_max
    }

    /// Such a connection begins.
    pub(crate) const fn stateful_opened(&mut self) {
        self.stateful += 1;
    }

    /// Such a connection is no more.
    pub(crate) const fn stateful_closed(&mut self) {
        self.stateful = self.stateful.saturating_sub(1);
    }

    /// Whether this host is the stateful side of a connection for the application.
    pub(crate) const fn has_stateful(&self) -> bool {
        self.stateful > 0
    }

    /// No further post is taken: the next one neither.
    pub(crate) const fn close(&mut self) {
        self.is_closed = true;
        self.done();
    }

    /// Whether no further post is taken.
    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The engine looks after an application's thread that sleeps: it rings `bell` after reports.
    pub fn set_sleeper(&mut self, bell: Bell) {
        self.sleeper = Some(bell);
    }

    /// Returns the memory that both ends share.
    #[must_use]
    pub const fn memory(&self) -> &StarPortalMemory {
        &self.memory
    }

    /// A turn of the engine begins: as many posts as may come to nothing may do so again.
    #[inline]
    pub const fn begin_turn(&mut self) {
        self.idle_left = IDLE_POSTS;
    }

    /// A post that was [done](StarPort::done) with came to nothing. After too many of them there is
    /// no next post in this turn.
    #[inline]
    pub const fn came_to_nothing(&mut self) {
        self.idle_left = self.idle_left.saturating_sub(1);
    }

    /// The next post and its inline data, which stays the next until [`StarPort::done`]. Posts that
    /// say nothing that there is are passed over, as long as that is not too many in one turn.
    #[inline]
    pub fn next_post(&mut self) -> Option<(Post, Option<Line>)> {
        while self.head.is_none() {
            if self.idle_left == 0 {
                return None;
            }
            let line = self.posts.pop()?;
            let second = if Post::has_second(&line) { self.posts.pop() } else { None };
            self.head = Post::from_line(&line).map(|post| (post, second));
            if self.head.is_none() {
                self.came_to_nothing();
            }
        }
        self.head
    }

    /// The next post is done with.
    #[inline]
    pub const fn done(&mut self) {
        self.head = None;
    }

    /// How many lines of posts there are, that with inline data is two. Looks at the other side's
    /// memory.
    #[inline]
    pub(crate) fn posts_waiting(&self) -> usize {
        usize::from(self.head.is_some()) + self.posts.len()
    }

    /// Whether there is no post. Looks at the other side's memory.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.head.is_none() && self.posts.is_empty()
    }

    /// Whether `reports` of them have room. What is seen stays: only the engine fills the ring.
    #[inline]
    pub fn has_room_for(&mut self, reports: usize) -> bool {
        self.reports.has_room_for(reports)
    }

    /// Whether there is room beyond what this host's own work requests and connections may still
    /// need: for what peers bring about, as often as they like.
    pub fn has_room_to_spare(&mut self) -> bool {
        let reserved = StarPortalMemory::reports_of(self.memory.slots(), self.memory.qps());
        self.reports.has_room_for(reserved + 1)
    }

    /// Reports. To be preceded by [`StarPort::has_room_for`]: what has no room is lost to an
    /// application that does not keep to the rules. `true` if it is the first one that
    /// [`StarPort::wake_sleeper`] must be called for.
    #[inline]
    pub fn report(&mut self, report: &Report) -> bool {
        let pushed = self.reports.push(&report.to_line());
        debug_assert!(pushed.is_ok(), "room was looked for");
        self.sleeper.is_some() && !core::mem::replace(&mut self.given, true)
    }

    /// Wakes the application's thread if it sleeps. Once after a burst of reports.
    pub fn wake_sleeper(&mut self) {
        self.given = false;
        if let Some(bell) = &self.sleeper
            && bell.doorbell.needs_ring()
        {
            bell.wake.wake();
        }
    }

    /// Writes a guard word.
    #[inline]
    pub fn set_guard(&mut self, slot: u32, guard: Guard) {
        self.memory.set_guard(slot, guard);
    }

    /// Writes a QP word. What was done before is seen by whoever sees it.
    #[inline]
    pub fn set_qp_word(&mut self, qp: u32, word: QpWord) {
        self.memory.set_qp_word(qp, word);
    }

    /// A connection begins of which nothing has been taken yet.
    #[inline]
    pub fn begin_qp(&mut self, qp: u32, word: QpWord) {
        self.memory.set_taken(qp, Taken::default());
        self.memory.set_qp_word(qp, word);
    }

    /// The roles of a connection are to change: the peer has taken what is before these places when
    /// the next era begins.
    pub fn expect_qp(&mut self, qp: u32, word: QpWord, taken: Taken) {
        self.memory.set_taken(qp, taken);
        self.memory.set_qp_word(qp, word);
    }

    /// Notes what the stateful side has taken, and that it was heard of.
    #[inline]
    pub fn note_taken(&mut self, qp: u32, taken: Taken) {
        self.memory.set_taken(qp, self.memory.taken(qp).later(taken));
        let word = self.memory.qp_word(qp);
        self.memory.set_qp_word(qp, QpWord { heard: word.heard.wrapping_add(1), ..word });
    }
}

impl Drop for StarPort {
    /// The engine reports no more: this wakes a thread that waits for that, so that it learns it.
    fn drop(&mut self) {
        if let Some(bell) = &self.sleeper {
            bell.wake.wake();
        }
    }
}
