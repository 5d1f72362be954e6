//! The promises of every provider, for every provider that this processor can run.
//!
//! | file | evidence |
//! |---|---|
//! | `published` | the test cases of the GCM specification, RFC 4493 and FIPS 197 |
//! | `wycheproof` | Project Wycheproof's AES-GCM and AES-CMAC: edge cases that have broken others |
//! | `differential` | all lengths, and batches that nobody wrote, against RustCrypto's `aes-gcm` |
//! | `contract` | buffers, bad tags, keys of another provider, limits |

mod batch;
mod contract;
mod differential;
mod published;
mod wycheproof;

use std::{io::Write, sync::Once};

use rma_crypto::{AeadProvider, ProviderKind};

/// Runs `test` with every provider that this processor has, and says which it could not run. Said
/// past the harness, which would hide it, and in the words that `cargo xtask test` collects: a
/// provider that was not tested should be known.
fn for_every_provider(test: impl FnMut(&'static dyn AeadProvider)) {
    static SAID: Once = Once::new();
    let (mut tested, mut said) = (Vec::new(), String::new());
    for kind in ProviderKind::ALL {
        match kind.provider() {
            Ok(provider) => tested.push(provider),
            Err(error) => said.push_str(&format!("NOT RUN: tests of {kind}: {error}\n")),
        }
    }
    SAID.call_once(|| {
        let names: Vec<_> = tested.iter().map(|provider| provider.kind().name()).collect();
        let names = names.join(", ");
        // In one piece, as the harness writes too. Standard error may be closed; that is no reason
        // to fail.
        let shown = format!("evidence: AEAD providers tested: {names}\n{said}");
        let _ = std::io::stderr().write_all(shown.as_bytes());
    });
    tested.into_iter().for_each(test);
}

fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    let octet = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(octet).collect()
}
