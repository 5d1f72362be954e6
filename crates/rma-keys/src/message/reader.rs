//! CBOR with limits, over `minicbor`: what it leaves open is closed here.
//!
//! `minicbor` reads items; it does not mind lengths that are indefinite, maps with a key twice, or
//! octets after the item, and its errors do not say which field they are about.

use core::{ops::RangeInclusive, time::Duration};

use minicbor::{
    data::Type,
    decode::{Decoder, Error},
};
use rma_core::op::OpType;

use crate::{
    epoch::{Epoch, Life},
    limits::{FIELDS_MAX, LIFETIME_MAX, MESSAGE_LEN_MAX, VERSION},
    message::malformed::{Field, Malformed},
    ops::OpSet,
};

/// Reads one message from its first octet to its last.
pub(super) struct Reader<'a> {
    decoder: Decoder<'a>,
    entry: Option<(&'static str, usize)>,
}

impl<'a> Reader<'a> {
    /// Reads a whole message: a map that begins with its version, and nothing after it. `field`
    /// reads the fields that it knows, by their keys, and says of others that it does not.
    pub(super) fn message(
        octets: &'a [u8],
        mut field: impl FnMut(&mut Self, u64) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        if octets.is_empty() || octets.len() > MESSAGE_LEN_MAX {
            return Err(Malformed::Length { len: octets.len() });
        }
        let mut reader = Self { decoder: Decoder::new(octets), entry: None };
        let mut version = None;
        reader.map("message", |reader, key| {
            if version.is_none() {
                if key != 0 {
                    return Err(Malformed::Missing { field: reader.named("version") });
                }
                match reader.number("version")? {
                    VERSION => version = Some(VERSION),
                    version => return Err(Malformed::Version { version }),
                }
                return Ok(true);
            }
            field(reader, key)
        })?;
        if version.is_none() {
            return Err(Malformed::Missing { field: reader.named("version") });
        }
        match octets.len() - reader.decoder.position() {
            0 => Ok(()),
            len => Err(Malformed::Trailing { len }),
        }
    }

    /// The field of this name, where the reader stands.
    pub(super) const fn named(&self, name: &'static str) -> Field {
        Field { entry: self.entry, name }
    }

    /// Returns the value read, or the error that it is missing.
    pub(super) fn present<T>(&self, read: Option<T>, name: &'static str) -> Result<T, Malformed> {
        read.ok_or(Malformed::Missing { field: self.named(name) })
    }

    fn range(&self, name: &'static str, value: u64, expected: &'static str) -> Malformed {
        Malformed::Value { field: self.named(name), value, expected }
    }

    /// Checks that an item of type `is` comes next.
    fn expect(
        &self,
        name: &'static str,
        is: impl FnOnce(Type) -> bool,
        expected: &'static str,
    ) -> Result<(), Malformed> {
        let found =
            self.decoder.datatype().map_err(|error| self.cut_off(name, &error, expected))?;
        if is(found) {
            return Ok(());
        }
        Err(self.type_error(name, shown(found), expected))
    }

    fn type_error(
        &self,
        name: &'static str,
        found: &'static str,
        expected: &'static str,
    ) -> Malformed {
        Malformed::Type { field: self.named(name), at: self.decoder.position(), found, expected }
    }

    /// Returns the error of an item whose first octet was right.
    fn cut_off(&self, name: &'static str, error: &Error, expected: &'static str) -> Malformed {
        if error.is_end_of_input() {
            let at = self.decoder.input().len();
            return Malformed::Truncated { field: self.named(name), at };
        }
        self.type_error(name, "not well-formed", expected)
    }

    /// The argument of the item that comes next: how long it says to be.
    fn announced_len(&self) -> Option<u64> {
        let octets = self.decoder.input().get(self.decoder.position()..)?;
        let (&first, octets) = octets.split_first()?;
        let wide = |len: usize| {
            let octets = octets.get(..len)?;
            Some(octets.iter().fold(0, |value, &octet| value << 8 | u64::from(octet)))
        };
        match first & 0x1f {
            few @ 0..=23 => Some(few.into()),
            24 => wide(1),
            25 => wide(2),
            26 => wide(4),
            27 => wide(8),
            _ => None,
        }
    }

    /// Checks how long the item that comes next says to be, before it is believed.
    fn expect_len(
        &self,
        name: &'static str,
        lens: RangeInclusive<usize>,
        expected: &'static str,
    ) -> Result<(), Malformed> {
        let Some(len) = self.announced_len() else {
            let at = self.decoder.input().len();
            return Err(Malformed::Truncated { field: self.named(name), at });
        };
        if usize::try_from(len).is_ok_and(|len| lens.contains(&len)) {
            return Ok(());
        }
        Err(self.range(name, len, expected))
    }

    /// A map: `field` reads the values of the keys that it knows, others are skipped.
    pub(super) fn map(
        &mut self,
        name: &'static str,
        mut field: impl FnMut(&mut Self, u64) -> Result<bool, Malformed>,
    ) -> Result<(), Malformed> {
        const EXPECTED: &str = "a map of at most 64 fields";
        const { assert!(FIELDS_MAX == 64) };
        self.expect(name, |it| it == Type::Map, EXPECTED)?;
        self.expect_len(name, 0..=FIELDS_MAX, EXPECTED)?;
        let len = self.decoder.map().map_err(|error| self.cut_off(name, &error, EXPECTED))?;
        let mut after = None;
        for _ in 0..len.unwrap_or(0) {
            let key = self.number(name)?;
            if let Some(after) = after.replace(key).filter(|&after| after >= key) {
                return Err(Malformed::Order { field: self.named(name), key, after });
            }
            if !field(self, key)? {
                self.skip(name)?;
            }
        }
        Ok(())
    }

    /// Leaves out the value of a field that is not known.
    fn skip(&mut self, map: &'static str) -> Result<(), Malformed> {
        const EXPECTED: &str = "a well-formed item without indefinite lengths";
        self.expect(map, |it| it != Type::Break, EXPECTED)?;
        self.decoder.skip().map_err(|error| self.cut_off(map, &error, EXPECTED))
    }

    /// A list: `entry` reads each of its entries, whose fields are then named after it.
    pub(super) fn list<T>(
        &mut self,
        name: &'static str,
        lens: RangeInclusive<usize>,
        expected: &'static str,
        mut entry: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        self.expect(name, |it| it == Type::Array, expected)?;
        self.expect_len(name, lens, expected)?;
        let len = self.decoder.array().map_err(|error| self.cut_off(name, &error, expected))?;
        let mut entries = Vec::new();
        for number in 0..len.unwrap_or(0) {
            self.entry = Some((name, number as usize));
            entries.push(entry(self)?);
        }
        self.entry = None;
        Ok(entries)
    }

    /// A number that is not negative.
    pub(super) fn number(&mut self, name: &'static str) -> Result<u64, Malformed> {
        const EXPECTED: &str = "a number";
        let is_number = |it| matches!(it, Type::U8 | Type::U16 | Type::U32 | Type::U64);
        self.expect(name, is_number, EXPECTED)?;
        self.decoder.u64().map_err(|error| self.cut_off(name, &error, EXPECTED))
    }

    /// A number of at most 32 bits.
    pub(super) fn number_u32(&mut self, name: &'static str) -> Result<u32, Malformed> {
        let value = self.number(name)?;
        u32::try_from(value).ok().ok_or_else(|| self.range(name, value, "a number below 2^32"))
    }

    /// A number that `known` makes something of.
    pub(super) fn coded<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        known: impl FnOnce(u64) -> Option<T>,
    ) -> Result<T, Malformed> {
        let value = self.number(name)?;
        known(value).ok_or_else(|| self.range(name, value, expected))
    }

    /// A type of op, by its code.
    pub(super) fn op_type(&mut self, name: &'static str) -> Result<OpType, Malformed> {
        let known = |code| u8::try_from(code).ok().and_then(OpType::from_code);
        self.coded(name, "the code of a type of op, 1 to 8", known)
    }

    /// A list of types of op that ascend. Its entries have no fields, so it may be in a list.
    pub(super) fn op_types(&mut self, name: &'static str) -> Result<OpSet, Malformed> {
        const EXPECTED: &str = "1 to 8 types of op";
        const { assert!(OpType::ALL.len() == 8) };
        self.expect(name, |it| it == Type::Array, EXPECTED)?;
        self.expect_len(name, 1..=OpType::ALL.len(), EXPECTED)?;
        let len = self.decoder.array().map_err(|error| self.cut_off(name, &error, EXPECTED))?;
        let mut ops = OpSet::NONE;
        let mut after = 0;
        for _ in 0..len.unwrap_or(0) {
            let op_type = self.op_type(name)?;
            let key = op_type as u64;
            if key <= after {
                return Err(Malformed::Order { field: self.named(name), key, after });
            }
            (ops, after) = (ops.with(op_type), key);
        }
        Ok(ops)
    }

    /// Milliseconds, at most `LIFETIME_MAX`.
    pub(super) fn millis(&mut self, name: &'static str) -> Result<Duration, Malformed> {
        let known = |millis| Some(Duration::from_millis(millis)).filter(|&it| it <= LIFETIME_MAX);
        self.coded(name, "milliseconds of at most 24 hours, 86400000", known)
    }

    /// A text of a length within `lens`.
    pub(super) fn text(
        &mut self,
        name: &'static str,
        lens: RangeInclusive<usize>,
        expected: &'static str,
    ) -> Result<&'a str, Malformed> {
        self.expect(name, |it| it == Type::String, expected)?;
        self.expect_len(name, lens, expected)?;
        self.decoder.str().map_err(|error| self.cut_off(name, &error, expected))
    }

    /// Octets, as many as `lens` allows.
    pub(super) fn octets(
        &mut self,
        name: &'static str,
        lens: RangeInclusive<usize>,
        expected: &'static str,
    ) -> Result<&'a [u8], Malformed> {
        self.expect(name, |it| it == Type::Bytes, expected)?;
        self.expect_len(name, lens, expected)?;
        self.decoder.bytes().map_err(|error| self.cut_off(name, &error, expected))
    }

    /// As many octets as there are in an array.
    pub(super) fn array<const LEN: usize>(
        &mut self,
        name: &'static str,
        expected: &'static str,
    ) -> Result<&'a [u8; LEN], Malformed> {
        let octets = self.octets(name, LEN..=LEN, expected)?;
        Ok(octets.first_chunk().expect("the length was checked"))
    }

    /// The life of an epoch.
    pub(super) fn life(&mut self, name: &'static str) -> Result<Life, Malformed> {
        self.array(name, "8 octets").copied().map(Life)
    }

    /// An epoch: a map with its life and its number.
    pub(super) fn epoch(&mut self) -> Result<Epoch, Malformed> {
        let (mut life, mut number) = (None, None);
        self.map("have", |reader, key| {
            match key {
                0 => life = Some(reader.life("have.life")?),
                1 => number = Some(reader.number("have.number")?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let life = self.present(life, "have.life")?;
        Ok(Epoch { life, number: self.present(number, "have.number")? })
    }
}

/// Returns the name of an item's type in an error.
const fn shown(found: Type) -> &'static str {
    match found {
        Type::Bool => "true or false",
        Type::Null | Type::Undefined => "null",
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => "a number",
        Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::Int => "a negative number",
        Type::F16 | Type::F32 | Type::F64 => "a fraction",
        Type::Bytes => "octets",
        Type::String => "a text",
        Type::Array => "a list",
        Type::Map => "a map",
        Type::Tag => "a tag",
        Type::BytesIndef | Type::StringIndef | Type::ArrayIndef | Type::MapIndef => {
            "of indefinite length"
        }
        Type::Simple | Type::Break | Type::Unknown(_) => "no value",
    }
}
