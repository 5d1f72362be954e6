//! A portal as an application holds it: the protocol's [`CommandPortal`], waiting for completions,
//! and the slots' way back.
//!
//! # Sleeping until a completion
//!
//! The engine rings only for threads that have said that they sleep, so the order matters: say so
//! (`arm`), look once more, and only then sleep. It is the engine's own protocol,
//! [`rma_shm::doorbell`], with the roles exchanged.

use core::{
    ops::{Deref, DerefMut, Range},
    time::Duration,
};
use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use crossbeam_queue::ArrayQueue;
use rma_core::{
    command::Completion,
    portal::{Bell, CommandPortal, Wake},
    time::Clock,
};
use rma_shm::Doorbell;

use crate::{
    clock::TscClock,
    engine::control::Life,
    error::{HostError, WaitError},
    event_fd::EventFd,
    executor::Executors,
    idle::{Idle, IdlePolicy, IdleTracker},
};

/// What a wait does, if the application says nothing else: most ops complete while it spins.
pub(crate) const WAIT: IdlePolicy = IdlePolicy {
    spin: Duration::from_micros(20),
    yield_for: Duration::from_micros(100),
    sleep: true,
};

/// Slots of portals that were dropped and whose ops may be in flight still. Shared with the
/// portals.
pub(crate) type Retired = Arc<ArrayQueue<Range<u16>>>;

/// Command slots and a completion queue, allocated from a host. Used by one thread at a time; may
/// be sent to another. All that [`CommandPortal`] does, this does.
///
/// ```
/// # use core::time::Duration;
/// # use rma_xdp::{Host, HostConfig, OpStatus, OpType, Permissions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = Host::open(HostConfig::udp([127, 0, 0, 21]))?;
/// # let host = Host::open(HostConfig::udp([127, 0, 0, 22]))?;
/// # let region = server.register(4096, Permissions::READ)?;
/// # let grant = server.grant(&region, [127, 0, 0, 22].into(), host.pid(), OpType::Read)?;
/// let mut portal = host.portal(4)?; // as many ops may be under way
/// let local = host.register(4096, Permissions::NONE)?;
/// for piece in 0..4 {
///     portal.read(&grant, piece * 1024, &local, piece * 1024, 1024)?;
/// }
/// // Completions come in any order, and each has the slot that `read` returned.
/// while portal.outstanding() > 0 {
///     match portal.wait_timeout(Duration::from_secs(1))? {
///         Some(completion) => assert_eq!(completion.status, OpStatus::Ok),
///         None => println!("still under way"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// When it is dropped, its slots go back to the host's pool as soon as their last op has completed.
/// Memory that such an op may still write belongs to a registered region, which the host keeps
/// alive.
#[derive(Debug)]
pub struct Portal {
    inner: CommandPortal,
    retired: Retired,
    /// Those of its host.
    executors: Executors,
    life: Life,
    /// `None` if the engine is inline: then nobody would wake a sleeper.
    sleep: Option<Sleep>,
    idle: IdlePolicy,
    clock: TscClock,
}

/// How the thread that uses a portal sleeps, and is woken.
#[derive(Clone, Debug)]
pub(crate) struct Sleep {
    doorbell: Arc<Doorbell>,
    event: Arc<EventFd>,
}

impl Sleep {
    pub(crate) fn new() -> Result<Self, HostError> {
        Ok(Self { doorbell: Arc::default(), event: Arc::new(EventFd::new()?) })
    }

    /// What the engine rings.
    pub(crate) fn bell(&self) -> Bell {
        Bell { doorbell: self.doorbell.clone(), wake: self.event.clone() }
    }

    /// Says that a thread is going to sleep. It is to look once more for all that it waits for, and
    /// only then to [`Sleep::sleep`]; in both cases [`Sleep::end`] follows. One thread at a time.
    pub(crate) fn prepare(&self) {
        self.doorbell.prepare_sleep();
    }

    /// Sleeps until it is rung, or `timeout` has passed; sometimes shorter.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) {
        self.event.sleep(timeout);
    }

    /// Says that the thread sleeps no more.
    pub(crate) fn end(&self) {
        self.doorbell.awake();
        // What was rung so far is for what is there already.
        self.event.drain();
    }

    /// Wakes the thread that sleeps, if one does or is about to, for what the caller has just made
    /// known to it.
    pub(crate) fn rouse(&self) {
        if self.doorbell.needs_ring() {
            self.event.wake();
        }
    }
}

impl Portal {
    pub(crate) fn new(
        inner: CommandPortal,
        retired: Retired,
        executors: Executors,
        life: Life,
        sleep: Option<Sleep>,
    ) -> Self {
        Self { inner, retired, executors, life, sleep, idle: WAIT, clock: TscClock::new() }
    }

    /// Whether it was allocated from the host whose queue of returned slots this is.
    pub(crate) fn is_of(&self, retired: &Retired) -> bool {
        Arc::ptr_eq(&self.retired, retired)
    }

    /// The executors of its host.
    pub(crate) const fn executors(&self) -> &Executors {
        &self.executors
    }

    /// How [`Portal::wait`] waits from now on. Default: spins for 20 µs, yields for 100 µs, then
    /// sleeps until the engine wakes it, which takes some tens of microseconds and the engine one
    /// system call.
    pub const fn set_idle(&mut self, idle: IdlePolicy) {
        self.idle = idle;
    }

    /// Waits for the next completion, as [`Portal::set_idle`] says. It comes within
    /// [`Timing::bound`](crate::Timing::bound) of its type of op (P1), as long as the engine's
    /// thread is scheduled.
    ///
    /// # Errors
    /// If no completion can come: nothing is in flight, the engine is gone, or it is inline and so
    /// does nothing while this thread waits ([`crate::InlineHost::wait`] is for those).
    pub fn wait(&mut self) -> Result<Completion, WaitError> {
        loop {
            if let Some(completion) = self.wait_for(None)? {
                return Ok(completion);
            }
        }
    }

    /// Waits for the next completion, for no longer than `timeout`: `None` if there is none by
    /// then. The ops go on.
    ///
    /// # Errors
    /// As [`Portal::wait`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Completion>, WaitError> {
        self.wait_for(Some(timeout))
    }

    fn wait_for(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>, WaitError> {
        let mut idle = IdleTracker::new(self.idle);
        loop {
            // Looked at first: completions given before the engine ended are still there.
            let ended = self.life.ended();
            if let Some(completion) = self.inner.poll() {
                return Ok(Some(completion));
            }
            if self.inner.outstanding() == 0 {
                return Err(WaitError::NothingOutstanding);
            }
            ended?;
            let now = self.clock.now();
            let waited = idle.since().map_or(Duration::ZERO, |since| now.since(since));
            let left = timeout.map(|timeout| timeout.saturating_sub(waited));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            match idle.idle(now) {
                Idle::Spin => core::hint::spin_loop(),
                Idle::Yield => std::thread::yield_now(),
                Idle::Sleep => self.sleep_for(left),
            }
        }
    }

    /// Sleeps until there is a completion, the engine ends, or `timeout` has passed; sometimes
    /// shorter.
    pub(crate) fn sleep_for(&self, timeout: Option<Duration>) {
        if let Some(sleep) = &self.sleep {
            sleep.prepare();
            if self.may_sleep() {
                sleep.sleep(timeout);
            }
            sleep.end();
        }
    }

    /// Whether there is no completion, and the engine lives.
    pub(crate) fn may_sleep(&self) -> bool {
        !self.inner.has_completion() && self.life.ended().is_ok()
    }

    /// How the thread that waits for completions sleeps; `None` if the engine is inline.
    pub(crate) const fn sleep(&self) -> Option<&Sleep> {
        self.sleep.as_ref()
    }

    /// An error if waiting for the engine is of no use.
    pub(crate) fn ended(&self) -> Result<(), WaitError> {
        self.life.ended()
    }

    /// A file descriptor that becomes readable when there is a completion to poll, for applications
    /// with an event loop of their own. `None` if the engine is inline.
    ///
    /// It is readable only for those who have asked for it, so that the engine need not make a
    /// system call for everybody else:
    ///
    /// 1. Poll completions until there are none. While no op is in flight there is nothing to be
    ///    armed for: issue one, or wait for whatever else, without the descriptor.
    /// 2. [`Portal::arm`]. If it returns `false`, go to 4.
    /// 3. Wait until the descriptor is readable (level-triggered is fine), beside whatever else.
    /// 4. [`Portal::disarm`], and begin anew.
    ///
    /// It also becomes readable when the engine ends; [`Portal::wait`] says so. Do not read from
    /// it.
    ///
    /// While a portal is armed, each turn of the engine that gives it completions costs a system
    /// call.
    #[must_use]
    pub fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sleep.as_ref().map(|sleep| sleep.event.as_fd())
    }

    /// Says that this thread is going to sleep on [`Portal::completion_fd`], and looks once more:
    /// `false` if it must not, as there is a completion already, or none will come: no op is in
    /// flight, or the engine has ended.
    #[must_use = "whoever sleeps beside a completion that is there already sleeps for ever"]
    pub fn arm(&mut self) -> bool {
        let Some(sleep) = &self.sleep else { return false };
        sleep.prepare();
        self.inner.outstanding() > 0 && self.may_sleep()
    }

    /// Says that this thread sleeps no more, after [`Portal::arm`]. The descriptor is not readable
    /// any longer.
    pub fn disarm(&mut self) {
        if let Some(sleep) = &self.sleep {
            sleep.end();
        }
    }
}

impl Deref for Portal {
    type Target = CommandPortal;

    fn deref(&self) -> &CommandPortal {
        &self.inner
    }
}

impl DerefMut for Portal {
    fn deref_mut(&mut self) -> &mut CommandPortal {
        &mut self.inner
    }
}

impl AsMut<CommandPortal> for Portal {
    fn as_mut(&mut self) -> &mut CommandPortal {
        &mut self.inner
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        let slots = self.inner.slots().clone();
        tracing::debug!(?slots, outstanding = self.inner.outstanding(), "portal dropped");
        // The queue has room for every portal that there can be. Were it ever full, the slots would
        // stay allocated: nothing worse.
        let _ = self.retired.push(slots);
    }
}
