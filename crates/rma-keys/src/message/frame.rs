//! The prefix of a message on a stream: its length, 4 octets, the most significant first.
//!
//! An RPC that has frames of its own leaves it out.

use crate::{limits::MESSAGE_LEN_MAX, message::malformed::Malformed};

/// The length of the length, in octets.
pub const LENGTH_LEN: usize = 4;

/// How long the message is that follows `length`.
///
/// # Errors
/// If it is empty, or longer than [`MESSAGE_LEN_MAX`]: a stream cannot go on after that.
pub const fn message_len(length: [u8; LENGTH_LEN]) -> Result<usize, Malformed> {
    match u32::from_be_bytes(length) as usize {
        len @ 1..=MESSAGE_LEN_MAX => Ok(len),
        len => Err(Malformed::Length { len }),
    }
}

/// Encodes the prefix of a message of `len` octets.
///
/// # Panics
/// If no message is that long: encoders make none.
#[must_use]
pub const fn length(len: usize) -> [u8; LENGTH_LEN] {
    assert!(len > 0 && len <= MESSAGE_LEN_MAX, "encoders keep messages within the limit");
    (len as u32).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_as_it_was_written_and_those_that_cannot_be_are_refused() {
        for len in [1, 255, 256, MESSAGE_LEN_MAX] {
            assert_eq!(message_len(length(len)), Ok(len));
        }
        for len in [0, MESSAGE_LEN_MAX as u32 + 1, u32::MAX] {
            let error = message_len(len.to_be_bytes()).unwrap_err().to_string();
            assert!(error.contains(&len.to_string()), "{error}");
        }
    }
}
