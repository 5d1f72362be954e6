//! Reads as futures: several at once, on any async executor, or none as here; and one that is given
//! up.

use core::{
    pin::pin,
    task::{Context, Waker},
};

use rma_xdp::{Client, Host, HostConfig, OpType, Permissions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Host::open(HostConfig::udp([127, 0, 0, 14]))?;
    let host = Host::open(HostConfig::udp([127, 0, 0, 15]))?;
    let region = server.register(1 << 20, Permissions::READ)?;
    region.write(300_000, b"one-sided")?;
    let grant = server.grant(&region, [127, 0, 0, 15].into(), host.pid(), OpType::Read)?;

    // `Client::start` has a thread that wakes futures wherever they run. Without it, `block_on`
    // does the work.
    let client = Client::new(host.transfers(64)?);
    let pool = host.buffer_pool(4, 100_000)?;

    let far_away = async {
        // A read takes its buffer, and gives it back when the NIC is done with it.
        let (result, buf) = client.read(&grant, 300_000, pool.acquire().await).await;
        result.map(|()| buf.to_vec())
    };
    let bytes = client.block_on(far_away)??;
    assert_eq!(&bytes[..9], b"one-sided");

    // A future that is dropped gives up its read. The buffer is the pool's again when no late frame
    // can touch it.
    let mut abandoned = client.read(&grant, 0, client.block_on(pool.acquire())?);
    assert!(pin!(&mut abandoned).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(abandoned);
    println!("{} of {} buffers are free", pool.free(), pool.count());
    let all = client.block_on(async {
        let mut all = Vec::new();
        while all.len() < pool.count() {
            all.push(pool.acquire().await);
        }
        all
    })?;
    println!("and then {}", all.len());
    Ok(())
}
