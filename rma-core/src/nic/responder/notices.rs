//! Failure notices that wait to be sent: the answers to requests that were refused (1RMA §4.2,
//! §4.5).
//!
//! There are three queues, one for each [`Cause`], which take turns. So refusals under K_d, of
//! which nobody without a key can cause any, those who have used an old key, and strangers do not
//! delay each other. In each queue initiators take turns, and where it is full, the longest list
//! makes room with its oldest. What waits for a timeout is forgotten, as its initiator has given
//! up.
//!
//! Notices under the reserved key have rates (P10), and tokens are spent when one is sent. A queue
//! without a token counts as empty until the next one comes, which is a matter of
//! [`Notices::poll_timeout`]: nobody spins over it.

mod told_requests;

use super::admission::Asked;
use crate::{
    backend::{LINK_LEN, Transmit, TxFrame},
    crypto::DerivedRegionKey,
    error::{DropReason, NotSent},
    fair_queue::{BucketSecret, FairLinks, FairQueue},
    nic::{NicConfig, NicCounters, tables::Tables},
    notice_limiter::NoticeLimiter,
    op::{ClassOfService, OpStatus},
    time::Instant,
    wire::{Failure, failure::FAILURE_LEN},
};
pub(in crate::nic) use told_requests::ToldRequests;

/// How many notices of one cause may wait. Larger: more is told of a burst that is faster than the
/// rate. Smaller: what is told comes sooner.
const NOTICES_MAX: usize = 256;

/// How many notices a second those get at least who have used an old key, whatever strangers get: a
/// host that tells strangers nothing still tells its friends.
const OLD_KEYS_PER_SECOND_MIN: u32 = 1_000;

/// The cause of a refusal, as far as queues and rates go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was authentic, and is refused under its K_d.
    Known,
    /// Its tag was right under a previous key of its region, or its region was rekeyed or
    /// deregistered while it waited.
    OldKey,
    /// It could not be authenticated.
    Stranger,
}

impl Cause {
    const COUNT: usize = 3;
    const ALL: [Self; Self::COUNT] = [Self::Known, Self::OldKey, Self::Stranger];

    const fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::COUNT]
    }
}

/// A notice that waits to be sent.
struct Notice {
    asked: Asked,
    status: OpStatus,
    /// K_d, if it is one that both share.
    key: Option<DerivedRegionKey>,
    /// The link by which its request came, if it may go back the same way.
    link: Option<[u8; LINK_LEN]>,
    opens_packet: bool,
    since: Instant,
}

/// The content of a notice, and the way by which it leaves.
pub(super) struct Refusal<'f> {
    pub(super) asked: &'f Asked,
    pub(super) status: OpStatus,
    /// K_d to seal it under, if it is one that both share.
    pub(super) key: Option<&'f DerivedRegionKey>,
    /// The link by which its request came, if it may go back the same way.
    pub(super) link: Option<&'f [u8; LINK_LEN]>,
    /// Whether it may begin a packet ([`Transmit::opens_packet`]).
    pub(super) opens_packet: bool,
}

/// The notices of one cause.
struct Queue {
    queue: FairQueue,
    /// `None`: as fast as they can be sent.
    limiter: Option<NoticeLimiter>,
}

impl Queue {
    const fn new(limiter: Option<NoticeLimiter>) -> Self {
        Self { queue: FairQueue::new(), limiter }
    }

    /// How many of them may be sent now, as far as time was noted.
    fn sendable(&self) -> usize {
        let tokens = self.limiter.as_ref().map_or(u64::MAX, NoticeLimiter::tokens);
        self.queue.len().min(usize::try_from(tokens).unwrap_or(usize::MAX))
    }
}

pub(in crate::nic) struct Notices {
    /// Of all queues.
    entries: Box<[Option<Notice>]>,
    links: FairLinks,
    free: Vec<u16>,
    /// In the order of [`Cause::ALL`].
    queues: [Queue; Cause::COUNT],
    /// The cause that is asked first the next time.
    first: Cause,
    told: ToldRequests,
    secret: BucketSecret,
    timeout_nanos: u64,
}

impl Notices {
    /// How many notices may wait.
    pub(in crate::nic) const ENTRIES: u32 = (Cause::COUNT * NOTICES_MAX) as u32;

    /// Bytes that each of them takes.
    pub(in crate::nic) const ENTRY_LEN: usize =
        size_of::<Option<Notice>>() + FairLinks::ENTRY_LEN + size_of::<u16>();

    pub(super) fn new(config: &NicConfig) -> Self {
        let rate = config.settings.notices_per_second;
        let limiter = |rate| Some(NoticeLimiter::new(config.part_of_rate(rate)));
        let limiters = [None, limiter(rate.max(OLD_KEYS_PER_SECOND_MIN)), limiter(rate)];
        Self {
            entries: (0..Self::ENTRIES).map(|_| None).collect(),
            links: FairLinks::new(Self::ENTRIES as usize),
            free: (0..Self::ENTRIES as u16).collect(),
            queues: limiters.map(Queue::new),
            first: Cause::Known,
            told: ToldRequests::new(config.timeout_nanos),
            secret: config.place.bucket_secret,
            timeout_nanos: config.timeout_nanos,
        }
    }

    /// Queues a notice. Where there is no room for it, another makes some.
    ///
    /// # Errors
    /// If there will be none: the request was told so less than a timeout ago.
    pub(super) fn push(
        &mut self,
        now: Instant,
        cause: Cause,
        &Refusal { asked, status, key, link, opens_packet }: &Refusal<'_>,
        counters: &NicCounters,
    ) -> Result<(), DropReason> {
        if cause == Cause::OldKey {
            // Its tag was right. That of a stranger proves nothing, and could be another's.
            let tag = &asked.seal.tag;
            if self.told.has(now, tag) {
                return Err(DropReason::Duplicate);
            }
            self.told.note(now, tag);
        }
        let Queue { queue, limiter } = &mut self.queues[cause as usize];
        if let Some(limiter) = limiter {
            limiter.note_time(now);
            if limiter.admits_none() {
                counters.count_not_sent(NotSent::NoticeRateLimited);
                return Ok(());
            }
        }
        if queue.len() == NOTICES_MAX
            && let Some((oldest, _)) = queue.oldest_of_longest()
        {
            counters.count_not_sent(NotSent::NoticeQueueFull);
            self.take(cause, oldest);
        }
        let Some(entry) = self.free.pop() else { return Ok(()) };
        self.entries[usize::from(entry)] = Some(Notice {
            asked: *asked,
            status,
            key: key.copied(),
            link: link.copied(),
            opens_packet,
            since: now,
        });
        let bucket = self.secret.bucket_of(asked.initiator);
        self.queues[cause as usize].queue.push_back(&mut self.links, bucket, entry);
        Ok(())
    }

    /// Takes `entry` out of the queue of `cause`, which it is in.
    fn take(&mut self, cause: Cause, entry: u16) -> Option<Notice> {
        self.queues[cause as usize].queue.remove(&mut self.links, entry);
        self.free.push(entry);
        self.entries[usize::from(entry)].take()
    }

    const fn is_empty(&self) -> bool {
        self.free.len() == Self::ENTRIES as usize
    }

    /// Forgets what has waited for too long. Tokens that have come since the last call can be spent
    /// from now on.
    pub(super) fn handle_timeout(&mut self, now: Instant, counters: &NicCounters) {
        // As in most turns.
        if self.is_empty() {
            return;
        }
        for cause in Cause::ALL {
            let queue = &mut self.queues[cause as usize];
            let is_limited = queue.limiter.is_some();
            if let Some(limiter) = &mut queue.limiter {
                limiter.note_time(now);
            }
            while let Some(entry) = self.queues[cause as usize].queue.oldest(&self.links)
                && let Some(notice) = &self.entries[usize::from(entry)]
                && now.nanos_since(notice.since) >= self.timeout_nanos
            {
                self.take(cause, entry);
                if is_limited {
                    counters.count_not_sent(NotSent::NoticeRateLimited);
                } else {
                    counters.requests_abandoned.add(1);
                }
            }
        }
    }

    /// When [`Notices::handle_timeout`] has work next.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        let next = |Queue { queue, limiter }: &Queue| {
            let oldest = self.entries[usize::from(queue.oldest(&self.links)?)].as_ref()?;
            let forgotten_at = oldest.since.after_nanos(self.timeout_nanos);
            let limiter = limiter.as_ref().filter(|limiter| limiter.tokens() == 0);
            let token_at = limiter.and_then(NoticeLimiter::next_at);
            Some(token_at.map_or(forgotten_at, |at| at.min(forgotten_at)))
        };
        self.queues.iter().filter_map(next).min()
    }

    /// How many notices may be sent now.
    pub(super) fn frames_waiting(&self) -> usize {
        if self.is_empty() { 0 } else { self.queues.iter().map(Queue::sendable).sum() }
    }

    /// Writes the next notice that may be sent, if there is one. Returns whether there was.
    #[inline]
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> bool {
        // As before most responses.
        !self.is_empty() && self.write_next(now, tables, out).is_some()
    }

    #[inline(never)]
    fn write_next(
        &mut self,
        now: Instant,
        tables: &mut Tables<'_>,
        out: &mut TxFrame<'_>,
    ) -> Option<()> {
        let cause = self.next_cause()?;
        let frame = out.bytes.get_mut(..FAILURE_LEN)?;
        let Queue { queue, limiter } = &mut self.queues[cause as usize];
        let entry = queue.pop_front(&mut self.links)?;
        self.free.push(entry);
        if let Some(limiter) = limiter {
            limiter.spend();
        }
        let Notice { asked, status, key, link, opens_packet, .. } =
            self.entries[usize::from(entry)].take()?;
        if cause == Cause::OldKey {
            // From now on it counts: it may have waited for nearly a timeout.
            self.told.note(now, &asked.seal.tag);
        }
        let failure = Failure { header: tables.security.stamped(asked.header), status };
        tables.security.write_failure(key.as_ref(), &asked.seal, &failure, frame);
        let behind = out.bytes[FAILURE_LEN..].first_chunk_mut();
        let link_behind = match (link, behind) {
            (Some(link), Some(behind)) => {
                *behind = link;
                true
            }
            _ => false,
        };
        out.hold(Transmit {
            // Others decide how many there are.
            class: ClassOfService::Latency,
            opens_packet,
            may_resolve: cause != Cause::Stranger,
            link_behind,
            ..asked.reply_for(tables, FAILURE_LEN)
        });
        Some(())
    }

    /// The queue whose turn it is, if it may send; otherwise the next that may.
    fn next_cause(&mut self) -> Option<Cause> {
        let mut cause = self.first;
        for _ in 0..Cause::COUNT {
            if self.queues[cause as usize].sendable() > 0 {
                self.first = cause.next();
                return Some(cause);
            }
            cause = cause.next();
        }
        None
    }
}
