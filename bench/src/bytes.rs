//! Numbers of bytes, as people type them: 64, 4K, 1M, 2G, with K, M and G as powers of two.

use core::str::FromStr;

/// A text that is no number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no number of bytes: give one such as 64, 4K or 1M, of at least 1")]
pub struct NoBytes {
    text: String,
}

/// A number of bytes, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = NoBytes;

    fn from_str(text: &str) -> Result<Self, NoBytes> {
        let digits = text.trim_end_matches(|it: char| !it.is_ascii_digit());
        let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
            "" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            _ => 64,
        };
        let bytes =
            digits.parse::<u64>().ok().and_then(|it| it.checked_mul(1_u64.checked_shl(shift)?));
        let bytes = bytes.filter(|&it| it > 0);
        bytes.map(Self).ok_or_else(|| NoBytes { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_typed_with_powers_of_two() {
        for (text, bytes) in [("1", 1), ("4K", 4096), ("1m", 1 << 20), ("2GiB", 2 << 30)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "0", "K", "-1", "1.5K", "1KB", "18446744073709551616", "99999999999G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}
