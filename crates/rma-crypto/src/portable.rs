//! The provider that runs everywhere: RustCrypto's `aes-gcm`, one frame after the other.
//!
//! It is also what the others are checked against. Their `zeroize` features are not used: they
//! clear octet by octet, which costs more than the set-up itself. What is kept is cleared here
//! instead, at once.

use core::mem::ManuallyDrop;

use aes::{
    Aes128Enc,
    cipher::{BlockCipherEncrypt, KeyInit},
};
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, AesGcm, aead::consts::U12};
use cmac::{Cmac, Mac};
use zeroize::optimization_barrier;

use crate::{
    job::{CMAC_MESSAGE_MAX, DeriveFrom, DeriveJob, JobKey, OpenJob, SealJob},
    key::{Key, KeySchedule, PreparedForm, PreparedKey, ScheduleForm},
    provider::{AeadProvider, PAYLOAD_LEN_MAX, ProviderKind},
    text::Text,
};

/// The provider that runs everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portable;

type Gcm = AesGcm<Aes128Enc, U12>;

/// The form that RustCrypto precomputes from a key.
pub(crate) type PortableKey = Erased<Gcm>;

/// As [`PortableKey`], to derive with.
pub(crate) type PortableSchedule = Erased<(Aes128Enc, Cmac<Aes128Enc>)>;

/// A value that is overwritten with zeros when it is dropped, instead of being dropped itself. For
/// values that own nothing but their own octets, as all of RustCrypto's ciphers.
pub(crate) struct Erased<T>(ManuallyDrop<T>);

impl<T> Erased<T> {
    fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: Clone> Clone for Erased<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Drop for Erased<T> {
    fn drop(&mut self) {
        let place = core::ptr::from_mut(&mut self.0).cast::<u8>();
        // SAFETY: the octets are this value's own, and nobody reads them as a `T` again:
        // `ManuallyDrop` does not drop what it holds.
        unsafe { place.write_bytes(0, size_of::<T>()) };
        optimization_barrier(self);
    }
}

fn gcm(key: &Key) -> PortableKey {
    Erased::new(Gcm::new(key.expose().into()))
}

fn ciphers(key: &Key) -> PortableSchedule {
    let key = key.expose().into();
    Erased::new((Aes128Enc::new(key), Cmac::new(key)))
}

/// Does `work` with what was prepared, if that is for this provider, or else with what is prepared
/// now.
fn with_gcm<R>(key: JobKey<'_>, work: impl FnOnce(&Gcm) -> R) -> R {
    match key {
        JobKey::Prepared(PreparedKey { form: PreparedForm::Portable(gcm), .. }) => work(&gcm.0),
        _ => work(&gcm(key.key()).0),
    }
}

/// As [`with_gcm`], to derive.
fn with_ciphers(schedule: &KeySchedule, work: impl FnOnce(&(Aes128Enc, Cmac<Aes128Enc>))) {
    match &schedule.form {
        ScheduleForm::Portable(made) => work(&made.0),
        #[cfg(target_arch = "x86_64")]
        ScheduleForm::Rounds(_) => work(&ciphers(&schedule.key).0),
    }
}

impl AeadProvider for Portable {
    fn kind(&self) -> ProviderKind {
        ProviderKind::Portable
    }

    fn schedule(&self, key: &Key) -> KeySchedule {
        KeySchedule {
            #[cfg(target_arch = "x86_64")]
            key: key.clone(),
            form: ScheduleForm::Portable(ciphers(key)),
        }
    }

    fn derive(&self, jobs: &[DeriveJob<'_>], keys: &mut [Key]) {
        assert_eq!(jobs.len(), keys.len(), "one key for each job");
        for (job, key) in jobs.iter().zip(keys) {
            match job.from {
                DeriveFrom::Block(block) => with_ciphers(job.schedule, |(cipher, _)| {
                    cipher.encrypt_block_b2b(block.into(), key.expose_mut().into());
                }),
                DeriveFrom::Cmac(message) => with_ciphers(job.schedule, |(_, cmac)| {
                    assert!(message.len() <= CMAC_MESSAGE_MAX, "{} octets", message.len());
                    let mut cmac = cmac.clone();
                    cmac.update(message);
                    *key.expose_mut() = cmac.finalize().into_bytes().into();
                }),
            }
        }
    }

    fn prepare(&self, key: &Key) -> PreparedKey {
        PreparedKey { key: key.clone(), form: PreparedForm::Portable(gcm(key)) }
    }

    fn seal(&self, jobs: &mut [SealJob<'_>]) {
        for job in jobs {
            let text = inout(&mut job.text);
            assert!(text.len() <= PAYLOAD_LEN_MAX, "a payload of {} octets", text.len());
            let tag = with_gcm(job.key, |gcm| {
                gcm.encrypt_inout_detached((&job.iv).into(), job.aad, text)
                    .expect("payloads are far shorter than AES-GCM's limit")
            });
            *job.tag = tag.into();
        }
    }

    fn open(&self, jobs: &mut [OpenJob<'_>]) {
        for job in jobs {
            let text = inout(&mut job.text);
            job.authentic = text.len() <= PAYLOAD_LEN_MAX
                && with_gcm(job.key, |gcm| {
                    gcm.decrypt_inout_detached((&job.iv).into(), job.aad, text, job.tag.into())
                        .is_ok()
                });
        }
    }
}

fn inout<'t>(text: &'t mut Text<'_>) -> InOutBuf<'t, 't, u8> {
    match text.parts() {
        (Some(from), to) => InOutBuf::new(from, to).expect("a text has one length"),
        (None, to) => to.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erasing_leaves_zeros() {
        let mut place = ManuallyDrop::new(Erased::new([0xa5u8; 40]));
        // SAFETY: dropped here once; what is read after is plain octets.
        unsafe { ManuallyDrop::drop(&mut place) };
        assert_eq!(*place.0, [0; 40]);
    }
}
