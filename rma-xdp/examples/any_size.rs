//! Transfers of any size: one that blocks, and one that is awaited.

use rma_xdp::{Client, Host, HostConfig, OpType, Permissions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Host::open(HostConfig::udp([127, 0, 0, 16]))?;
    let host = Host::open(HostConfig::udp([127, 0, 0, 17]))?;
    let region = server.register(8 << 20, Permissions::READ)?;
    region.write(5 << 20, b"any size")?;
    let grant = server.grant(&region, [127, 0, 0, 17].into(), host.pid(), OpType::Read)?;

    // Cut into ops, paced by congestion control, retried; it returns when all of it is there.
    let mut transfers = host.transfers(64)?;
    let local = host.register(8 << 20, Permissions::NONE)?;
    let began = transfers.now();
    transfers.read(&grant, 0, &local, 0, 8 << 20)?;
    println!("8 MiB in {:?}", transfers.now().since(began));

    // A future, for any async transfers or none. It takes its buffer and gives it back.
    let client = Client::new(transfers);
    let pool = host.buffer_pool(4, 1 << 20)?;
    let read = async { client.read(&grant, 5 << 20, pool.acquire().await).await };
    let (result, buf) = client.block_on(read)?;
    result?;

    let mut bytes = [0; 8];
    local.read(5 << 20, &mut bytes)?;
    assert_eq!((&bytes, &buf.to_vec()[..8]), (b"any size", &bytes[..]));
    Ok(())
}
