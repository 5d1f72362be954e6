//! A portal as an application holds it: the protocol's [`CommandPortal`], waiting for completions,
//! and the slots' way back.

mod events;

use core::{ops::Range, time::Duration};
use std::os::fd::BorrowedFd;

use rma_core::{
    addr::Pid,
    command::{CommandSlotId, Completion},
    crypto::RegionKey,
    error::SubmitError,
    grant::Grant,
    outcome::OpName,
    portal::{Batch, CommandPortal, ReadOp, RecordedOp, Source, WriteOp},
    region::RegisteredRegion,
    time::{Clock as _, Instant},
};

use crate::{
    clock::TscClock,
    error::WaitError,
    home::{Home, PortalParts},
    idle::IdlePolicy,
    lease::PortalLease,
    sleep::Sleep,
    wait::{Awaited, Look, Place, wait},
};

/// The default idle policy of a wait: most ops complete while it yields.
pub(crate) const WAIT: IdlePolicy =
    IdlePolicy { spin: Duration::ZERO, yield_for: Duration::from_micros(120), sleep: true };

/// Command slots and a completion queue, allocated from a host. Used by one thread at a time; may
/// be sent to another.
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
    rings: CommandPortal,
    /// After the rings: nobody gives the slots to another while these are there.
    lease: PortalLease,
    idle: IdlePolicy,
    clock: TscClock,
}

impl Portal {
    /// Puts a portal together, for its maker. Applications get theirs from a host.
    #[must_use]
    pub fn new(parts: PortalParts) -> Self {
        let PortalParts { rings, home, life, sleep } = parts;
        let lease = PortalLease::new(rings.slots().clone(), home, life, sleep);
        Self { rings, lease, idle: WAIT, clock: TscClock::new() }
    }

    /// Takes the portal apart, for an application that waits in a way of its own: the protocol's
    /// portal, and the lease of its slots. Drop the rings first, and issue nothing once the lease
    /// is dropped: the slots are to become another portal's, and a request for these slots waits as
    /// long as ops of this one are under way.
    #[must_use]
    pub fn into_parts(self) -> (CommandPortal, PortalLease) {
        (self.rings, self.lease)
    }

    /// Whether the maker with this home made it.
    #[must_use]
    #[inline]
    pub fn is_of(&self, home: &dyn Home) -> bool {
        self.lease.is_of(home)
    }

    /// The PID that grants for this portal must name.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.rings.pid()
    }

    /// The portal's command slots.
    #[must_use]
    pub const fn slots(&self) -> &Range<u16> {
        self.rings.slots()
    }

    /// The slot that the next command will get; `None` if all are in use. Lets an application keep
    /// what belongs to an op, such as the place where its data lands, by slot.
    #[must_use]
    #[inline]
    pub fn next_slot(&self) -> Option<CommandSlotId> {
        self.rings.next_slot()
    }

    /// How many ops have been issued whose completions have not been polled.
    #[must_use]
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.rings.outstanding()
    }

    /// Issues several ops at once: the engine sees the last of them, and is woken if it sleeps,
    /// when the batch is dropped.
    #[inline]
    pub const fn batch(&mut self) -> Batch<'_> {
        self.rings.batch()
    }

    /// Whether [`Portal::poll`] has a completion to take. Always looks at what the engine has
    /// written.
    #[must_use]
    #[inline]
    pub fn has_completion(&self) -> bool {
        self.rings.has_completion()
    }

    /// The next completion, if there is one. Its slot may be used again.
    #[must_use]
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        self.rings.poll()
    }

    /// Sets how [`Portal::wait`] waits from now on. Default: yields for 120 µs, then sleeps until
    /// the engine wakes it, which takes some tens of microseconds and the engine one system call.
    pub const fn set_idle(&mut self, idle: IdlePolicy) {
        self.idle = idle;
    }

    /// Waits for the next completion, as [`Portal::set_idle`] says. It comes within
    /// [`Timing::bound`](rma_core::nic::Timing::bound) of its type of op (P1), as long as the
    /// engine's thread is scheduled.
    ///
    /// # Errors
    /// If no completion can come: nothing is in flight, the engine is gone, or it is inline and so
    /// does nothing while this thread waits (`InlineHost::wait` of the crate `rma-xdp` is for
    /// those).
    pub fn wait(&mut self) -> Result<Completion, WaitError> {
        let completion = wait(self, None, Awaited::look)?;
        Ok(completion.expect("only a time that comes ends a wait without one"))
    }

    /// Waits for the next completion, for no longer than `timeout`: `None` if there is none by
    /// then. The ops go on.
    ///
    /// # Errors
    /// As [`Portal::wait`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Completion>, WaitError> {
        wait(self, Some(timeout), Awaited::look)
    }

    /// A file descriptor that becomes readable when there is a completion to poll, or an event of a
    /// receive queue that is bound to the portal, for applications with an event loop of their own.
    /// `None` if the engine is inline.
    ///
    /// It is readable only for those who have asked for it, so that the engine need not make a
    /// system call for everybody else:
    ///
    /// 1. Poll completions until there are none. While no op is in flight there is nothing to be
    ///    armed for: issue one, or wait for whatever else, without the descriptor.
    /// 2. [`Portal::arm`]; who waits for events as well: [`Portal::arm_with`]. If it returns
    ///    `false`, go to 4.
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
        self.lease.fd()
    }

    /// Says that this thread is going to sleep on [`Portal::completion_fd`], and looks once more:
    /// `false` if it must not, as there is a completion already, or none will come: no op is in
    /// flight, or the engine has ended.
    #[must_use = "whoever sleeps beside a completion that is there already sleeps for ever"]
    pub fn arm(&mut self) -> bool {
        let Some(sleep) = self.lease.sleep() else { return false };
        sleep.prepare();
        self.rings.outstanding() > 0 && self.lease.may_sleep(&self.rings)
    }

    /// Says that this thread no longer sleeps, after [`Portal::arm`]. The descriptor is no longer
    /// readable.
    pub fn disarm(&mut self) {
        if let Some(sleep) = self.lease.sleep() {
            sleep.end();
        }
    }
}

/// Ops that the protocol's portal issues, and whose docs say what each promises.
macro_rules! issues {
    ($($(#[$doc:meta])+ $name:ident($($arg:ident: $of:ty),+);)+) => {
        impl Portal {$(
            $(#[$doc])+
            ///
            #[doc = concat!("[`CommandPortal::", stringify!($name), "`] says what it promises.")]
            ///
            /// # Errors
            /// As that. Then nothing was issued.
            #[inline]
            pub fn $name(&mut self, $($arg: $of),+) -> Result<CommandSlotId, SubmitError> {
                self.rings.$name($($arg),+)
            }
        )+}
    };
}

issues! {
    /// Reads `len` bytes of the granted region into `sink`, in the latency class.
    read(grant: &Grant, remote_offset: u64, sink: &RegisteredRegion, offset: u64, len: u32);
    /// Issues a read. Its completion names the slot that is returned here.
    issue_read(op: &ReadOp<'_>);
    /// Writes `len` bytes of `source` to the granted region, in the latency class.
    write(grant: &Grant, remote_offset: u64, source: &RegisteredRegion, offset: u64, len: u32);
    /// Issues a write (§5.1). Its completion names the slot that is returned here.
    issue_write(op: &WriteOp<'_>);
    /// Issues a Rekey: `key` becomes the K_r of the granted region (§5.2).
    rekey(grant: &Grant, key: RegionKey);
    /// Sends `len` bytes of `source` to a receive queue, in the latency class.
    send(grant: &Grant, source: &RegisteredRegion, offset: u64, len: u32, immediate: u64);
    /// Makes an event in a receive queue, in the latency class: the bufferless send.
    notify(grant: &Grant, immediate: u64);
    /// Writes to a region, and makes an event in the queue that it names, in the latency class.
    write_with_imm(grant: &Grant, remote_offset: u64, source: Source<'_>, immediate: u64);
    /// Writes to a region so that the last word lands last, in the latency class.
    write_ordered(grant: &Grant, remote_offset: u64, source: Source<'_>);
    /// Replaces a word of a region by `new` if it is `expected`, in the latency class. What was
    /// there is the completion's [`result`](Completion::result).
    compare_swap(grant: &Grant, remote_offset: u64, expected: u64, new: u64);
    /// Adds `addend` to a word of a region, modulo 2^64, in the latency class. What was there is
    /// the completion's [`result`](Completion::result).
    fetch_add(grant: &Grant, remote_offset: u64, addend: u64);
    /// Issues a recorded op, which is applied at most once.
    issue_recorded(op: &RecordedOp<'_>);
    /// Asks what became of the recorded op that its target calls `name`
    /// ([`Completion::name`]) and that ended with TIMEOUT, in the latency class.
    settle(grant: &Grant, name: OpName);
}

/// Its next completion.
impl Awaited for Portal {
    type Found = Completion;
    type Error = WaitError;

    fn is_of(&self, home: &dyn Home) -> bool {
        self.is_of(home)
    }

    #[inline]
    fn look(&mut self) -> Result<Look<Completion>, WaitError> {
        match self.poll() {
            Some(completion) => Ok(Look::Found(completion)),
            None if self.outstanding() == 0 => Err(WaitError::NothingOutstanding),
            None => Ok(Look::Idle(None)),
        }
    }
}

impl Place for Portal {
    fn is_of(&self, home: &dyn Home) -> bool {
        self.is_of(home)
    }

    fn hopeless(&self) -> Result<(), WaitError> {
        self.lease.ended()
    }

    /// Now, as a look at a portal reads no clock.
    fn looked_at(&self) -> Instant {
        self.clock.now()
    }

    fn next_at(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> IdlePolicy {
        self.idle
    }

    fn sleep(&mut self) -> Option<Sleep> {
        self.lease.sleep().cloned()
    }
}
