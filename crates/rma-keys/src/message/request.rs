//! A client's request: keys of regions, by name and type of op, for one process of one host.

use rma_core::addr::{HostAddr, LocalAddresses, Pid};

use crate::{
    epoch::Epoch,
    limits::{NAME_LEN_MAX, REGIONS_MAX},
    message::{
        malformed::{Field, Malformed},
        reader::Reader,
        writer::Writer,
    },
    name::RegionName,
    ops::OpSet,
    secret::Octets,
};

/// The most that a request about one region takes, in octets, its name aside.
const WANTED_LEN_MAX: usize = 64;

/// A request for keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The addresses of the host that the keys are for, at most one of each family. For each region
    /// the one of its responder's family counts.
    pub initiators: LocalAddresses,
    /// The process there that the keys are for.
    pub pid: Pid,
    /// The regions, 1 to [`REGIONS_MAX`].
    pub regions: Vec<Wanted>,
}

/// A client's request about one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The region.
    pub name: RegionName,
    /// The types of op that keys are wanted for. At least one; all are given, or none.
    pub ops: OpSet,
    /// The latest epoch that the client has such keys of.
    pub have: Option<Epoch>,
}

impl Request {
    /// The octets of this request. Its reply repeats `number`: requests to one service that follow
    /// each other, or are under way together, have different ones.
    ///
    /// # Panics
    /// If it has no address, no region, more than [`REGIONS_MAX`] of them, or one without an op.
    #[must_use]
    pub fn encode(&self, number: u32) -> Octets {
        let addresses: Vec<HostAddr> = self.initiators.iter().collect();
        assert!(!addresses.is_empty(), "a request has an address");
        assert!((1..=REGIONS_MAX).contains(&self.regions.len()), "a request has 1 to 32 regions");
        let names: usize = self.regions.iter().map(|it| it.name.len()).sum();
        let len = WANTED_LEN_MAX * (1 + self.regions.len()) + names;
        let mut writer = Writer::new(len, 4);
        writer.field(1).number(number.into());
        writer.field(2).list(addresses.len());
        for address in addresses {
            write_address(&mut writer, address);
        }
        writer.field(3).number(self.pid.0.into());
        writer.field(4).list(self.regions.len());
        for Wanted { name, ops, have } in &self.regions {
            assert!(!ops.is_empty(), "a region is asked for with a type of op");
            writer.map(2 + u64::from(have.is_some())).field(0).text(name);
            writer.field(1).list(ops.len());
            ops.iter().for_each(|op_type| _ = writer.number(op_type as u64));
            if let Some(have) = have {
                writer.field(2).map(2).epoch(*have);
            }
        }
        writer.finish()
    }

    /// The request that these octets are. Its number is [`message::number`]'s.
    ///
    /// [`message::number`]: crate::message::number
    ///
    /// # Errors
    /// If they are none, with the field and the value.
    pub fn decode(octets: &[u8]) -> Result<Self, Malformed> {
        let (mut number, mut initiators, mut pid, mut regions) = (None, None, None, None);
        Reader::message(octets, |reader, key| {
            match key {
                1 => number = Some(reader.number_u32("number")?),
                2 => initiators = Some(read_initiators(reader)?),
                3 => pid = Some(Pid(reader.number_u32("pid")?)),
                4 => {
                    let read =
                        reader.list("regions", 1..=REGIONS_MAX, "1 to 32 regions", wanted)?;
                    regions = Some(read);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let missing = |name| Malformed::Missing { field: Field { entry: None, name } };
        number.ok_or_else(|| missing("number"))?;
        Ok(Self {
            initiators: initiators.ok_or_else(|| missing("initiators"))?,
            pid: pid.ok_or_else(|| missing("pid"))?,
            regions: regions.ok_or_else(|| missing("regions"))?,
        })
    }
}

/// Writes an address as its own octets: 4 or 16.
pub(super) fn write_address(writer: &mut Writer, address: HostAddr) {
    let octets = address.to_octets();
    writer.octets(if address.is_ipv4() { &octets[12..] } else { &octets });
}

/// Reads an address that a host can have.
pub(super) fn read_address(
    reader: &mut Reader<'_>,
    name: &'static str,
) -> Result<HostAddr, Malformed> {
    const EXPECTED: &str = "an address, of 4 or 16 octets";
    let octets = reader.octets(name, 4..=16, EXPECTED)?;
    let address = match (<[u8; 4]>::try_from(octets), <[u8; 16]>::try_from(octets)) {
        (Ok(v4), _) => Some(HostAddr::from(v4)),
        // An IPv4 address has one spelling, of 4 octets.
        (_, Ok(v6)) => Some(HostAddr::from_octets(v6)).filter(|it| !it.is_ipv4()),
        _ => None,
    };
    let value = octets.len() as u64;
    let field = reader.named(name);
    let address = address.ok_or(Malformed::Value { field, value, expected: EXPECTED })?;
    let ip = address.ip();
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(Malformed::Address { field, address });
    }
    Ok(address)
}

fn read_initiators(reader: &mut Reader<'_>) -> Result<LocalAddresses, Malformed> {
    const EXPECTED: &str = "1 or 2 addresses";
    let field = reader.named("initiators");
    let read = |reader: &mut Reader<'_>| read_address(reader, "address");
    let mut initiators = LocalAddresses::default();
    for address in reader.list("initiators", 1..=2, EXPECTED, read)? {
        if initiators.insert(address).is_some() {
            return Err(Malformed::Family { field, address });
        }
    }
    Ok(initiators)
}

fn wanted(reader: &mut Reader<'_>) -> Result<Wanted, Malformed> {
    let (mut name, mut ops, mut have) = (None, None, None);
    reader.map("fields", |reader, key| {
        match key {
            0 => {
                let text = reader.text("name", 1..=NAME_LEN_MAX, "a name of 1 to 255 octets")?;
                let field = reader.named("name");
                name = Some(text.parse().map_err(|why| Malformed::Name { field, why })?);
            }
            1 => ops = Some(reader.op_types("ops")?),
            2 => have = Some(reader.epoch()?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let name = reader.present(name, "name")?;
    Ok(Wanted { name, ops: reader.present(ops, "ops")?, have })
}
