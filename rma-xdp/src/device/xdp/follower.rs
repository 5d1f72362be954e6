//! The thread that keeps a host's backends attached to their interface, whatever becomes of the
//! interface.
//!
//! A virtual interface is deleted and made again, a driver is reloaded, an interface moves to
//! another network namespace: the kernel takes it from our sockets for ever, and one of the same
//! name that comes back is another. This thread notices, takes the program off, asks each backend
//! for what is dead, and gives it its [`Share`] of a new [`Attachment`] when there is such an
//! interface again. Each by itself: of an engine that stands still the queues wait, and no others
//! do. News of the interface come from the path table's writer; whether the sockets live is asked
//! of the kernel itself, so that news that are lost or overtaken do no harm. It also changes the
//! mode where the one that was chosen turns out to lose frames: see [`super::doubts`].
//! And it attaches anew where the interface has got more receive queues: frames on a queue without
//! a socket of ours go to the kernel. Of queues there are no news, so it looks. Fewer they do not
//! get: `ethtool -L` is refused where a socket would lose its queue.
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
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
};

use rma_shm::Worker;

use super::{
    attachment::{Attachment, FewerQueues, Learnt},
    backend::XdpBackend,
    capabilities::Capabilities,
    choice::ZeroCopy,
    config::{Mode, XdpConfig},
    counters::Counters,
    description::Description,
    device::Device,
    doubts::{Doubts, Finding},
    error::XdpError,
    place::Place,
    share::Share,
    silence::Mute,
    sockopt::XskStatistics,
    watch::XskWatch,
};
use crate::device::{
    engines::{Engines, queues_of},
    monotonic::monotonic,
    net::{LinkState, PathTable, channels},
    status::{InterfaceState, InterfaceStatus},
};

/// How often the interface's name and queues are looked at, and the sockets without any news.
/// Longer is longer without the frames on new queues, or if news were lost; shorter is some system
/// calls as often, one of which takes the kernel's lock on all interfaces.
const LOOK: Duration = Duration::from_secs(1);

/// How often an interface that is there, and cannot be attached to, is tried again without news of
/// it: what is in the way may be another program, whose end nobody tells.
const RETRY: Duration = Duration::from_secs(1);

/// The pause after an attempt that failed, whatever the news. Shorter: a route that flaps keeps
/// this thread busy.
const PAUSE: Duration = Duration::from_millis(50);

/// How long it is waited for engines to give their shares back, before what is attached anew goes
/// to those that have. Longer: one that stands still holds up the others as long. Shorter: one that
/// is busy gets its queues later than the others.
const GRACE: Duration = Duration::from_millis(100);

/// The thread's news for others.
#[derive(Debug)]
struct Told {
    description: Description,
    watch: XskWatch,
    /// Whether an engine has its share.
    attached: bool,
    /// Receive queues of the engines that have theirs.
    polled: u32,
    attachments: u64,
    /// The reason why the last attempt to attach failed.
    trouble: Option<String>,
}

impl Told {
    /// Of those that there are, how many are polled, or would be if it were attached.
    fn queues_polled(&self) -> u32 {
        let Description { queues, queues_there, .. } = self.description;
        if self.attached { self.polled } else { queues }.min(queues_there)
    }
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    paths: Arc<PathTable>,
    /// One set for each engine.
    counters: Arc<[Arc<Counters>]>,
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
    /// Returns the status of the interface.
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
            // The earlier obstacle says nothing about an interface that is not there.
            trouble: told
                .trouble
                .as_deref()
                .filter(|_| state == InterfaceState::Detached)
                .map(Into::into),
            queues: told.description.queues_there,
            queues_polled: told.queues_polled(),
            device: told.description.to_string().into(),
        }
    }

    /// Describes the present or last attachment.
    pub(crate) fn description(&self) -> Description {
        self.0.told().description.clone()
    }

    /// Returns the backends' counters, a set for each engine.
    pub(crate) fn counters(&self) -> &[Arc<Counters>] {
        &self.0.counters
    }

    /// Returns the kernel's statistics of the attached sockets. `None` while there are none.
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
    /// Follows the interface that `backends` were opened on with `config`, in the calling thread's
    /// network namespace.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(config: &XdpConfig, backends: &[XdpBackend]) -> Result<Self, XdpError> {
        let counters: Arc<[Arc<Counters>]> =
            backends.iter().map(|backend| backend.counters().clone()).collect();
        let (mut places, mut watch, mut present) = (Vec::new(), XskWatch::default(), None);
        for (backend, counters) in backends.iter().zip(&*counters) {
            let (exchange, share) = backend.followed().expect("it has been opened just now");
            places.push(Place::having(exchange, counters.clone(), FIRST));
            watch.add(&share.watched);
            present = Some((&share.attachment, backend.paths()));
        }
        let (attachment, paths) = present.expect("a host has an engine");
        let description = attachment.description().clone();
        let learnt = Learnt::default();
        let doubts = attachment.doubts(learnt, watch.clone(), &counters);
        let (polled, trouble) = (description.queues, None);
        let told = Told { description, watch, attached: true, polled, attachments: 1, trouble };
        let (stop, told) = (AtomicBool::new(false), Mutex::new(told));
        let shared = Arc::new(Shared { stop, paths: paths.clone(), counters, told });
        let failed = |source| {
            XdpError::from_thread(&config.interface, "starting the interface's thread", source)
        };
        let engines = match attachment.engines {
            1 => Engines::One,
            // They stay as many, however many queues there will be.
            engines => Engines::Count(engines),
        };
        let body = Thread {
            config: XdpConfig { engines, ..config.clone() },
            places,
            present: Some(Arc::downgrade(attachment)),
            number: FIRST,
            detached_at: Duration::ZERO,
            shared: shared.clone(),
            doubts,
            learnt,
            refused_queues: None,
            missing: Capabilities::missing(),
            look_at: monotonic(),
            late_at: Duration::ZERO,
        };
        let spawned = Worker::start("rma-attach", move || body.run());
        let thread = spawned.map_err(failed)?;
        paths.wake_on_change(thread.thread().clone());
        // An earlier change woke nobody.
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

/// The number of the attachment that a host begins with.
const FIRST: u64 = 1;

/// The state of the thread.
struct Thread {
    config: XdpConfig,
    /// One for each engine.
    places: Vec<Place>,
    /// The attachment that there is.
    present: Option<Weak<Attachment>>,
    /// The number of the present or last attachment.
    number: u64,
    detached_at: Duration,
    shared: Arc<Shared>,
    /// Of what is attached, as long as another mode might be better.
    doubts: Option<Doubts>,
    /// As long as the interface is the same.
    learnt: Learnt,
    /// How many receive queues there were when a socket for each could not be had.
    refused_queues: Option<u32>,
    /// The capabilities that this thread lacked when it began.
    missing: Capabilities,
    /// When to look at the interface.
    look_at: Duration,
    /// When to try again to give late engines their shares.
    late_at: Duration,
}

impl Thread {
    fn run(mut self) {
        self.places.iter().for_each(Place::followed_by_this_thread);
        while !self.stopped() {
            self.look_at_engines();
            if self.present.is_some() {
                self.stay_attached();
            } else {
                self.seek();
            }
        }
    }

    /// Takes from the engines what is of no use any longer, and tells what they have.
    fn look_at_engines(&mut self) {
        let Self { places, present, number, shared, .. } = self;
        let present = present.as_ref().map(|_| *number);
        places.iter_mut().for_each(|place| place.look(present));
        let Some(number) = present else { return };
        if places.iter().all(Place::has_ended) {
            // The host closes, and what it told stays.
            return;
        }
        let mut told = shared.told();
        let (engines, queues) = (places.len() as u32, told.description.queues);
        let own = |engine| queues_of(engine, engines, queues).count() as u32;
        let having = (0..).zip(&*places).filter(|(_, place)| place.has(number));
        told.polled = having.map(|(engine, _)| own(engine)).sum();
        if !told.attached && told.polled > 0 {
            told.attached = true;
            told.attachments += 1;
        }
    }

    /// Looks whether the present attachment may stay.
    fn stay_attached(&mut self) {
        let (attached, dead, interface) = {
            let Told { attached, watch, description, .. } = &*self.shared.told();
            (*attached, watch.is_dead(), description.interface.clone())
        };
        if dead {
            tracing::warn!(
                interface = &*interface,
                "interface detached: it was removed, or moved to another network namespace"
            );
            // One that comes back is another, in another network perhaps.
            (self.learnt, self.refused_queues) = (Learnt::default(), None);
            self.detach();
        } else if self.may_attach() && self.has_more_queues() {
            self.detach();
        } else if attached && let Some(finding) = self.doubts.as_mut().and_then(Doubts::look) {
            if self.may_attach() && self.take_in(finding) {
                self.detach();
            }
        } else if let Err(error) = self.serve_late_engines() {
            self.late_at = monotonic() + RETRY;
            self.tell_trouble(&error, "an engine cannot have its receive queues back");
        } else {
            thread::park_timeout(self.doubts.as_ref().map_or(LOOK, Doubts::pause));
        }
    }

    /// Attaches, if there is an interface, and an engine to do it for.
    fn seek(&mut self) {
        let may_come = self.places.iter().any(Place::is_asked);
        let grace = (self.detached_at + GRACE).saturating_sub(monotonic());
        if self.shared.paths.link_state() == LinkState::Gone {
            (self.learnt, self.refused_queues) = (Learnt::default(), None);
            thread::park_timeout(RETRY);
        } else if !self.places.iter().any(Place::is_empty) {
            thread::park_timeout(LOOK);
        } else if may_come && !grace.is_zero() {
            thread::park_timeout(grace);
        } else if let Err(error) = self.attach() {
            if self.gives_up_queues(&error) {
                return;
            }
            self.tell_trouble(&error, "the interface is back and cannot be attached to");
            self.pause();
            thread::park_timeout(RETRY);
        }
    }

    /// Whether this thread has what it attached with. A process that has dropped its privileges
    /// keeps the attachment that it has.
    fn may_attach(&self) -> bool {
        Capabilities::missing() == self.missing
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(SeqCst)
    }

    /// Notes what was found out, and says whether to attach anew for it.
    fn take_in(&mut self, finding: Finding) -> bool {
        let Self { config, learnt, .. } = self;
        let interface = &*config.interface;
        match finding {
            Finding::GenericLosesFrames => {
                tracing::warn!(
                    interface,
                    "in generic mode frames do not get to the sockets: native mode from now on"
                );
                learnt.generic_lost_frames = true;
            }
            Finding::ZeroCopyMute(direction) => {
                self.shared.counters[0].zero_copy_mute.add(1);
                let seen = match direction {
                    Mute::Receiving => "the device has no buffers and delivers nothing",
                    Mute::Sending => "nobody answers, while others on this machine are heard",
                };
                if config.mode == Mode::NativeZeroCopy {
                    tracing::warn!(
                        interface,
                        seen,
                        "the device seems to be mute with zero-copy, which was asked for: try \
                         without"
                    );
                    self.doubts = None;
                    return false;
                }
                tracing::warn!(
                    interface,
                    seen,
                    "the device seems to be mute with zero-copy: copy mode from now on"
                );
                learnt.zero_copy = match direction {
                    Mute::Receiving => ZeroCopy::Mute,
                    Mute::Sending => ZeroCopy::OnTrial,
                };
            }
            Finding::CopyHears => {
                tracing::warn!(interface, "copy mode hears what zero-copy did not: it stays");
                learnt.zero_copy = ZeroCopy::Mute;
                self.doubts = None;
                return false;
            }
            Finding::CopyHearsNothing => {
                tracing::info!(interface, "copy mode hears nothing either: zero-copy again");
                learnt.zero_copy = ZeroCopy::Acquitted;
            }
        }
        true
    }

    /// Takes the program off. What engines have of it they are asked for next. An inline host gives
    /// it back in one of its next turns; there is nothing to do before that.
    fn detach(&mut self) {
        self.shared.told().attached = false;
        self.doubts = None;
        if let Some(attachment) = self.present.take().as_ref().and_then(Weak::upgrade) {
            attachment.detach();
        }
        self.detached_at = monotonic();
    }

    /// Attaches for all engines that have given back what they had.
    fn attach(&mut self) -> Result<(), XdpError> {
        let Self { config, shared, learnt, places, .. } = self;
        let attachment = Arc::new(Attachment::open(config, &shared.paths, *learnt)?);
        let each = places.iter().map(|place| place.is_empty().then_some(&place.counters));
        let shares = Share::open_each(&attachment, config, &Vec::from_iter(each))?;
        let (description, mut watch) = (attachment.description().clone(), XskWatch::default());
        shares.iter().flatten().for_each(|share| watch.add(&share.watched));
        self.doubts = attachment.doubts(*learnt, watch.clone(), &shared.counters);
        tracing::info!(device = %description, "interface attached again");
        for fallback in &description.fallbacks {
            tracing::warn!(%fallback, "works less well than it could");
        }
        {
            let mut told = shared.told();
            (told.description, told.watch, told.trouble) = (description, watch, None);
        }
        self.number += 1;
        self.present = Some(Arc::downgrade(&attachment));
        for (engine, (place, share)) in places.iter_mut().zip(shares).enumerate() {
            if let Some(share) = share {
                place.offer(share, self.number);
            } else if place.is_asked() {
                tracing::warn!(engine, "it stands still, and its receive queues wait for it");
            }
        }
        Ok(())
    }

    /// Gives engines their shares that were late to give back what they had.
    fn serve_late_engines(&mut self) -> Result<(), XdpError> {
        let Some(attachment) = self.present.as_ref().and_then(Weak::upgrade) else { return Ok(()) };
        if monotonic() < self.late_at {
            return Ok(());
        }
        for (engine, place) in (0..).zip(&mut self.places).filter(|(_, place)| place.is_empty()) {
            let share = Share::open_late(&attachment, &self.config, engine, &place.counters)?;
            self.shared.told().watch.add(&share.watched);
            place.offer(share, self.number);
        }
        Ok(())
    }

    /// Looks at the interface, now and then: under which name people know it by now, and whether it
    /// has got receive queues that are not polled, and might be.
    fn has_more_queues(&mut self) -> bool {
        if monotonic() < self.look_at {
            return false;
        }
        self.look_at = monotonic() + LOOK;
        let Description { interface, queues, .. } = self.shared.told().description.clone();
        let index = self.shared.paths.interface_index();
        // Without an answer: what has become of it the sockets tell.
        let Some(Ok(device)) = index.map(|index| Device::open(index, &interface)) else {
            return false;
        };
        // A driver that does not tell: as many as were found when it was attached to.
        let there = channels(&device.name).map_or(queues, |it| it.receive);
        let mut told = self.shared.told();
        let Told { description, .. } = &mut *told;
        (description.interface, description.queues_there) = (device.name, there);
        let more = there > queues && self.refused_queues != Some(there);
        if more {
            let interface = &*description.interface;
            tracing::warn!(
                interface,
                there,
                polled = queues,
                "receive queues were added: attaching anew"
            );
            self.learnt.fewer_queues = None;
        }
        more
    }

    /// Whether to attach to as many receive queues as before, as more of them cannot be had.
    fn gives_up_queues(&mut self, error: &XdpError) -> bool {
        let Description { queues: polled, queues_there: there, .. } =
            self.shared.told().description.clone();
        let known = self.learnt.fewer_queues;
        let Some(fewer) = FewerQueues::after(error, polled..there, known) else { return false };
        tracing::warn!(%error, there, polled, "the added receive queues are not polled");
        self.learnt.fewer_queues = Some(fewer);
        self.refused_queues = Some(there);
        true
    }

    fn tell_trouble(&self, error: &XdpError, what: &str) {
        let text = error.to_string();
        let mut told = self.shared.told();
        // Once: it is tried again every second.
        if told.trouble.as_ref() != Some(&text) {
            tracing::warn!(%error, "{what}");
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

#[cfg(test)]
mod tests;
