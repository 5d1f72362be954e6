//! Messages, events and atomics by name (not in the paper).
//!
//! An op that was refused for its key was not applied and never will be, so it goes again under the
//! next one. One whose outcome is unknown is never repeated.

use core::time::Duration;

use rma_app::{RegionBuf, TransferError, TransferOptions};
use rma_core::{
    executor::{CallStatus, Outcome},
    grant::Grant,
    op::{OpStatus, OpType},
};
use rma_keys::{
    io::key_cache::{KeyedRegion, NoKey},
    keyed::{Asked, KeyedStatus, Persistence, tell},
    limits::KEYS_WAIT_MAX,
    ring::{GiveUp, Standing},
};

use super::{KeyedClient, KeyedError};

/// Recorded ops. Each is applied once at most, also over a change of keys, and waits for a key as
/// transfers do. Where the outcome is [`TransferError::Unknown`], [`Client::settle`] asks about it,
/// under [`KeyedRegion::grant`].
///
/// [`Client::settle`]: rma_app::Client::settle
impl KeyedClient {
    /// Sends all bytes of `message`, up to 4 KiB, to a receive queue that was published:
    /// [`Client::send`](rma_app::Client::send).
    ///
    /// # Errors
    /// If there is no key, or the op has ended so.
    ///
    /// # Panics
    /// If the region is of another [`KeyCache`](rma_keys::io::key_cache::KeyCache).
    pub async fn send(
        &self,
        queue: &KeyedRegion,
        message: RegionBuf,
        immediate: u64,
        options: TransferOptions,
    ) -> (Result<(), KeyedError>, RegionBuf) {
        let (len, mut held) = (message.len() as u64, Some(message));
        let issue = async |grant: Grant, options| {
            let message = held.take().expect("it came back");
            let op = self.client.send(&grant, message, immediate);
            let (sent, message) = op.options(options).await;
            held = Some(message);
            sent
        };
        let sent = self.by_key(queue, OpType::Send, len, options, issue).await;
        (sent, held.expect("it came back"))
    }

    /// Makes an event in a receive queue: [`Client::notify`](rma_app::Client::notify).
    ///
    /// # Errors
    /// As [`KeyedClient::send`].
    ///
    /// # Panics
    /// As [`KeyedClient::send`].
    pub async fn notify(
        &self,
        queue: &KeyedRegion,
        immediate: u64,
        options: TransferOptions,
    ) -> Result<(), KeyedError> {
        let issue = async |grant: Grant, options| {
            self.client.notify(&grant, immediate).options(options).await
        };
        self.by_key(queue, OpType::Notify, 0, options, issue).await
    }

    /// Replaces the word at `remote_offset` by `new` if it is `expected`, and comes to the word
    /// that was there: [`Client::compare_swap`](rma_app::Client::compare_swap).
    ///
    /// # Errors
    /// As [`KeyedClient::send`].
    ///
    /// # Panics
    /// As [`KeyedClient::send`].
    pub async fn compare_swap(
        &self,
        region: &KeyedRegion,
        remote_offset: u64,
        expected: u64,
        new: u64,
        options: TransferOptions,
    ) -> Result<u64, KeyedError> {
        let issue = async |grant: Grant, options| {
            let op = self.client.compare_swap(&grant, remote_offset, expected, new);
            op.options(options).await
        };
        self.by_key(region, OpType::CompareSwap, 8, options, issue).await
    }

    /// Adds `addend` to the word at `remote_offset`, and comes to the word that was there:
    /// [`Client::fetch_add`](rma_app::Client::fetch_add).
    ///
    /// # Errors
    /// As [`KeyedClient::send`].
    ///
    /// # Panics
    /// As [`KeyedClient::send`].
    pub async fn fetch_add(
        &self,
        region: &KeyedRegion,
        remote_offset: u64,
        addend: u64,
        options: TransferOptions,
    ) -> Result<u64, KeyedError> {
        let issue = async |grant: Grant, options| {
            self.client.fetch_add(&grant, remote_offset, addend).options(options).await
        };
        self.by_key(region, OpType::FetchAdd, 8, options, issue).await
    }

    /// Issues an op of so many bytes under the key that there is, until it is not refused for that.
    async fn by_key<T>(
        &self,
        region: &KeyedRegion,
        op_type: OpType,
        len: u64,
        options: TransferOptions,
        mut issue: impl AsyncFnMut(Grant, TransferOptions) -> Result<T, TransferError>,
    ) -> Result<T, KeyedError> {
        assert!(region.key_cache().is_same(&self.grants), "the region is of another key cache");
        let (grants, ring) = (&self.grants, region.ring());
        let began = grants.with_cache(|_, now| now)?;
        let (mut persistence, mut last): (_, Option<Box<Outcome>>) = (Persistence::default(), None);
        let no_key = |why: NoKey, last| KeyedError::NoKey { why: why.into(), last };
        loop {
            let (standing, key, now) = grants.with_cache(|cache, now| {
                (cache.standing(now, ring), cache.grant(now, ring, op_type), now)
            })?;
            let left = |timeout: Duration| timeout.saturating_sub(now.since(began));
            let left = options.time_limit().map(left);
            let key = match (standing, key) {
                (Standing::Ready, Some(key)) => key,
                // The ring is for other ops.
                (Standing::Ready, None) => {
                    return Err(no_key(region.gave_up(GiveUp::Denied), last));
                }
                (Standing::GaveUp(why), _) => return Err(no_key(region.gave_up(why), last)),
                (Standing::Waiting, _) => match region.ready(left.unwrap_or(KEYS_WAIT_MAX)).await {
                    Ok(()) => continue,
                    Err(why) => return Err(no_key(why, last)),
                },
            };
            let options = left.map_or(options, |left| options.timeout(left));
            let outcome = match issue(key.grant, options).await {
                Err(TransferError::Failed(outcome)) => outcome,
                Err(error) => return Err(error.into()),
                Ok(value) => {
                    let holds = OpStatus::Ok;
                    _ = grants
                        .with_cache(|cache, now| cache.on_outcome(now, ring, key.epoch, holds));
                    return Ok(value);
                }
            };
            let asked = [Asked::of(ring, &key, len)];
            let verdict = grants.with_cache(|cache, now| match outcome.status {
                CallStatus::Failed(status) => cache.on_outcome(now, ring, key.epoch, status),
                _ => tell(now, cache, &asked, &outcome),
            })?;
            match persistence.goes_on(&asked, &outcome, verdict) {
                Ok(()) => last = Some(outcome),
                Err(KeyedStatus::GaveUp(why)) => {
                    return Err(no_key(region.gave_up(why), Some(outcome)));
                }
                Err(_) => return Err(TransferError::Failed(outcome).into()),
            }
        }
    }
}
