//! The thread that keeps a backend attached to its interface, whatever becomes of the interface.
//!
//! A virtual interface is deleted and made again, a driver is reloaded, an interface moves to
//! another network namespace: the kernel takes it from our sockets for ever, and one of the same
//! name that comes back is another. This thread notices, takes what is dead from the backend, and
//! gives it a new [`Attachment`] when there is an interface of that name again. News of the
//! interface come from the path table's writer; whether the sockets live is asked of the kernel
//! itself, so that news that are lost or overtaken do no harm. It also changes the steering
//! program's mode where the one that was chosen turns out to lose frames: see [`super::doubts`].
//!
//! It is a control thread: it allocates, makes system calls and may wait. It lives in the network
//! namespace, and with the privileges, that the host was opened in.
//!
//! Invariant: the thread ends before the drop of its [`Follower`] returns.

use core::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use rma_shm::Worker;

use super::{
    attachment::Attachment, backend::XdpBackend, config::XdpConfig, counters::Counters,
    description::Description, doubts::Doubts, error::XdpError, exchange::Exchange,
    sockopt::XskStatistics, watch::XskWatch,
};
use crate::device::{
    monotonic::monotonic,
    net::{LinkState, PathTable},
    status::{InterfaceState, InterfaceStatus},
};

/// How often the sockets are looked at without any news. Only for news that were lost: longer is
/// longer without frames then, shorter is a system call for each queue as often.
const LOOK: Duration = Duration::from_secs(5);

/// How often an interface that is there, and cannot be attached to, is tried again without news of
/// it: what is in the way may be another program, whose end nobody tells.
const RETRY: Duration = Duration::from_secs(1);

/// How often it is looked whether generic mode, chosen for its speed, loses frames: a few system
/// calls. Longer is longer without those frames.
const DOUBT: Duration = Duration::from_millis(250);

/// The pause after an attempt that failed, whatever the news. Shorter: a route that flaps keeps
/// this thread busy.
const PAUSE: Duration = Duration::from_millis(50);

/// What the thread tells others.
#[derive(Debug)]
struct Told {
    description: Description,
    watch: XskWatch,
    attached: bool,
    attachments: u64,
    /// Why the last attempt to attach failed.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    paths: Arc<PathTable>,
    counters: Arc<Counters>,
    told: Mutex<Told>,
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        // It is written field by field from whole values.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells on any thread how the interface is doing. May outlive the host: then everything stays as
/// it was.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceWatch(Arc<Shared>);

impl InterfaceWatch {
    /// How the interface is doing.
    pub(crate) fn status(&self) -> InterfaceStatus {
        let link = self.0.paths.link_state();
        let told = self.0.told();
        let state = match (link, told.attached) {
            (LinkState::Gone, _) => InterfaceState::Gone,
            (_, false) => InterfaceState::Detached,
            (LinkState::Down, true) => InterfaceState::Down,
            (LinkState::Up, true) => InterfaceState::Up,
        };
        InterfaceStatus {
            interface: told.description.interface.clone(),
            state,
            attachments: told.attachments,
            // What was in the way before says nothing about an interface that is not there.
            trouble: told
                .trouble
                .as_deref()
                .filter(|_| state == InterfaceState::Detached)
                .map(Into::into),
            device: told.description.to_string().into(),
        }
    }

    /// What is attached, or was last.
    pub(crate) fn description(&self) -> Description {
        self.0.told().description.clone()
    }

    /// What the backend counts.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// What the kernel counts for the sockets that are attached. `None` while there are none.
    pub(crate) fn statistics(&self) -> Option<XskStatistics> {
        let watch = self.0.told().watch.clone();
        watch.statistics()
    }
}

/// The handle of the thread. Dropped, it ends it.
#[derive(Debug)]
pub(crate) struct Follower {
    shared: Arc<Shared>,
    thread: Option<Worker>,
}

impl Follower {
    /// Follows the interface that `backend` was opened on with `config`, in the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(config: XdpConfig, backend: &XdpBackend) -> Result<Self, XdpError> {
        let (exchange, attachment, paths) =
            backend.followed().expect("a backend is attached when it has been opened");
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            paths: paths.clone(),
            counters: backend.counters().clone(),
            told: Mutex::new(Told {
                description: attachment.description.clone(),
                watch: attachment.watched.watch(),
                attached: true,
                attachments: 1,
                trouble: None,
            }),
        });
        let failed = |source| {
            XdpError::from_thread(&config.interface, "starting the interface's thread", source)
        };
        let body = Thread {
            config: config.clone(),
            exchange,
            shared: shared.clone(),
            doubts: attachment.doubts(),
            generic_lost_frames: false,
        };
        let spawned = Worker::start("rma-attach", move || body.run());
        let thread = spawned.map_err(failed)?;
        paths.wake_on_change(thread.thread().clone());
        // What changed before that woke nobody.
        thread.thread().unpark();
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Tells how the interface is doing.
    pub(crate) fn watch(&self) -> InterfaceWatch {
        InterfaceWatch(self.shared.clone())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join();
        }
    }
}

/// What the thread owns.
struct Thread {
    config: XdpConfig,
    exchange: Arc<Exchange>,
    shared: Arc<Shared>,
    /// Of what is attached, as long as another mode might be better.
    doubts: Option<Doubts>,
    /// Whether the interface, as long as it is the same, was attached to in generic mode, and that
    /// lost frames.
    generic_lost_frames: bool,
}

impl Thread {
    fn run(mut self) {
        self.exchange.followed_by_this_thread();
        while !self.stopped() {
            let (attached, dead) = {
                let told = self.shared.told();
                (told.attached, told.attached && told.watch.is_dead())
            };
            if dead {
                tracing::warn!(
                    interface = &*self.config.interface,
                    "interface detached: it was removed, or moved to another network namespace"
                );
                // One that comes back is another, in another network perhaps.
                self.generic_lost_frames = false;
                self.detach();
            } else if attached && self.doubts.as_mut().is_some_and(Doubts::came_true) {
                tracing::warn!(
                    interface = &*self.config.interface,
                    "in generic mode frames do not get to the sockets: native mode from now on"
                );
                self.generic_lost_frames = true;
                self.detach();
            } else if attached {
                thread::park_timeout(if self.doubts.is_some() { DOUBT } else { LOOK });
            } else if self.shared.paths.link_state() == LinkState::Gone {
                thread::park_timeout(RETRY);
            } else if let Err(error) = self.attach() {
                self.tell_trouble(&error);
                self.pause();
                thread::park_timeout(RETRY);
            }
        }
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(SeqCst)
    }

    /// Takes from the backend what is dead, or in the wrong mode, and drops it. An inline host
    /// gives it back in one of its next turns; there is nothing to do before that.
    fn detach(&mut self) {
        self.shared.told().attached = false;
        self.doubts = None;
        let _dead = self.exchange.replace(None, || self.stopped());
    }

    fn attach(&mut self) -> Result<(), XdpError> {
        let Self { config, shared, generic_lost_frames, .. } = &*self;
        let attachment =
            Attachment::open(config, &shared.paths, &shared.counters, *generic_lost_frames)?;
        self.doubts = attachment.doubts();
        let (description, watch) = (attachment.description.clone(), attachment.watched.watch());
        tracing::info!(device = %description, "interface attached again");
        for fallback in &description.fallbacks {
            tracing::warn!(%fallback, "works less well than it could");
        }
        let _none = self.exchange.replace(Some(Box::new(attachment)), || self.stopped());
        let mut told = self.shared.told();
        let attachments = told.attachments + 1;
        *told = Told { description, watch, attached: true, attachments, trouble: None };
        Ok(())
    }

    fn tell_trouble(&self, error: &XdpError) {
        let text = error.to_string();
        let mut told = self.shared.told();
        // Once: it is tried again every second.
        if told.trouble.as_ref() != Some(&text) {
            tracing::warn!(%error, "the interface is back and cannot be attached to");
            told.trouble = Some(text);
        }
    }

    /// Waits, whoever wakes the thread; but for its end.
    fn pause(&self) {
        let until = monotonic() + PAUSE;
        while !self.stopped()
            && let left = until.saturating_sub(monotonic())
            && !left.is_zero()
        {
            thread::park_timeout(left);
        }
    }
}
