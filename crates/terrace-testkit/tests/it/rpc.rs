//! ggml's RPC server as a device with memory of its own, in another process.

use std::time::Duration;
use terrace_ggml::devices::rates::{Processor, Product, RatesError};
use terrace_ggml::devices::rpc::add_rpc_server;
use terrace_ggml::devices::{DeviceKind, devices};
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

#[test]
fn a_server_is_a_device_that_computes_within_its_memory() {
    let server = RpcServer::start(ByteSize::mib(24)).unwrap();
    let before = devices().len();
    let device = add_rpc_server(server.endpoint()).unwrap()[0];
    assert_eq!(add_rpc_server(server.endpoint()).unwrap(), [device], "known is known");
    assert_eq!(devices().len(), before + 1);
    assert!(devices().contains(&device) && device.is_remote());
    assert_eq!((device.kind(), device.description().as_str()), (DeviceKind::Gpu, server.endpoint()));
    assert_eq!(device.memory(), (ByteSize::mib(24), ByteSize::mib(24)));

    let mut remote = Processor::device(device, ByteSize::mib(16)).unwrap();
    assert_eq!(device.memory().0, ByteSize::mib(8));
    assert!(remote.host_weights().is_none());
    assert!(matches!(Processor::device(device, ByteSize::mib(16)), Err(RatesError::Memory { .. })));
    let product = Product { ty: WeightType::Q4_0, rows: 256, cols: 512, tokens: 4, experts: None };
    let pass = remote.product(&product, ByteSize::mib(1), Duration::ZERO).unwrap().unwrap();
    assert!(pass.seconds > 0.0);
    assert!(remote.layer_overhead(Duration::ZERO).unwrap() > 0.0);
    assert!(remote.link(ByteSize::mib(1), Duration::ZERO).is_some() && remote.latency(Duration::ZERO) > 0.0);
    drop(remote);
    assert_eq!(device.memory().0, ByteSize::mib(24));
}
