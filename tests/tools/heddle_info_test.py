"""heddle-info prints what it promises: text, JSON, the environment table."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, ENVIRONMENT_MD = sys.argv.pop(1), sys.argv.pop(1)
FAKE_CUDA = sys.argv.pop(1) if len(sys.argv) > 1 else ""  # of tests/gpu
NETWORK_DOUBLE = sys.argv.pop(1) if len(sys.argv) > 1 else ""  # of tests/gpu, the folder


def run(*arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HEDDLE_")} | variables
    return subprocess.run([PROGRAM, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=60, check=False)


def info(*arguments, **variables):
    result = run("--json", *arguments, **variables)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def made_up_machine(sysfs):
    """GPU 0, behind a switch with mlx5_0, and four network devices further and further away."""
    devices = {"0000:00:00.0": ("pci0000:00/0000:00:01.0/0000:10:00.0/0000:11:00.0/0000:00:00.0", 0, []),
               "0000:13:00.0": ("pci0000:00/0000:00:01.0/0000:10:00.0/0000:11:01.0/0000:13:00.0", 0, ["infiniband/mlx5_0", "net/eth1"]),
               "0000:14:00.0": ("pci0000:00/0000:00:02.0/0000:14:00.0", 0, ["infiniband/mlx5_1"]),
               "0000:41:00.0": ("pci0000:40/0000:40:01.0/0000:41:00.0", 0, ["infiniband/mlx5_2"]),
               "0000:81:00.0": ("pci0000:80/0000:80:01.0/0000:81:00.0", 1, ["infiniband/mlx5_3"]),
               "0000:82:00.0": ("pci0000:80/0000:80:02.0/0000:82:00.0/virtio2", 1, ["net/eth0"])}
    os.makedirs(f"{sysfs}/bus/pci/devices")
    for address, (path, numa_node, names) in devices.items():
        device = f"{sysfs}/devices/{path}"
        os.makedirs(device)
        os.symlink(device, f"{sysfs}/bus/pci/devices/{address}")
        with open(f"{os.path.dirname(device) if 'virtio' in path else device}/numa_node", "w", encoding="ascii") as file:
            file.write(f"{numa_node}\n")
        for name in names:
            os.makedirs(f"{sysfs}/class/{name}")
            os.symlink(device, f"{sysfs}/class/{name}/device")
    os.makedirs(f"{sysfs}/class/net/lo")


class HeddleInfo(unittest.TestCase):
    def test_text_has_every_part(self):
        result = run("-n", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ["heddle 0.", "Machine", "usable cores", "Transports", "shm (memfd)", "cuda", "ucx", "verbs",
                     "Devices", "no HEDDLE_* variable is set", "Algorithms for 3 ranks", "allreduce",
                     "bcast", "allgather"]:
            self.assertIn(part, result.stdout)
        self.assertRegex(result.stdout, r"  allgather +4 B to .* of each rank: \w+\n")

    def test_ranges_cover_all_sizes_of_each_collective(self):
        for ranks in ["1", "2", "5"]:
            chosen = info("-n", ranks)["algorithms"]
            self.assertNotIn("error", chosen)
            for collective in ["allreduce", "bcast", "reduce", "allgather"]:
                ranges = [r for r in chosen["ranges"] if r["collective"] == collective]
                self.assertEqual(ranges[0]["first_bytes"], 4)
                self.assertEqual(ranges[-1]["last_bytes"], 64 << 20)
                for one, next_one in zip(ranges, ranges[1:]):
                    self.assertEqual(one["last_bytes"] * 2, next_one["first_bytes"])
                    self.assertNotEqual(one["algorithm"], next_one["algorithm"])

    def test_forced_algorithm_shows(self):
        chosen = info("-n", "4", HEDDLE_ALGORITHM="allreduce:ring")["algorithms"]
        names = {r["algorithm"] for r in chosen["ranges"] if r["collective"] == "allreduce"}
        self.assertEqual(names, {"ring"})

    def test_explained_prices(self):
        described = ["--explain", "-n", "1", "--nodes", "4", "--latency", "20", "--gbit", "1"]
        explained = info(*described)
        for size in explained["sizes"]:
            prices = [c["us"] for c in size["candidates"]]
            self.assertEqual(prices, sorted(prices))
            self.assertEqual(size["by"], "price")
            chosen = [c["us"] for c in size["candidates"] if c["algorithm"] == size["choice"]]
            self.assertLessEqual(chosen[0], 1.03 * prices[0])
        sizes = {(s["collective"], s["bytes"]): s["candidates"][0]["us"] for s in explained["sizes"]}
        # Rounds of messages that all go far cost what the network makes of them, and what nobody else's do.
        def of(explained, algorithm):
            return [c["us"] for s in explained["sizes"] for c in s["candidates"] if c["algorithm"] == algorithm]
        narrow = info(*described, "--crossing", "3")
        self.assertEqual(of(narrow, "chain"), of(explained, "chain"))
        for wide_us, narrow_us in zip(of(explained, "circulant"), of(narrow, "circulant"), strict=True):
            self.assertAlmostEqual(narrow_us, 3 * wide_us, delta=1e-6 * narrow_us)
        # Nothing beats the links: 2 * 3/4 of the bytes at 8 ns each, or all of them once; nor a message's latency.
        self.assertGreater(sizes["allreduce", 32 << 20], 1.5 * (32 << 20) * 8e-3)
        self.assertGreater(sizes["bcast", 32 << 20], (32 << 20) * 8e-3)
        self.assertGreater(sizes["bcast", 8], 20)
        # Sizes of an allgather are each rank's: those of the three others.
        self.assertGreater(sizes["allgather", 8 << 20], 3 * (8 << 20) * 8e-3)
        forced = info(*described, HEDDLE_ALGORITHM="ring")
        self.assertEqual({s["choice"] for s in forced["sizes"] if s["collective"] == "allreduce"}, {"ring"})
        text = run(*described).stdout
        for part in ["4 nodes of 1 rank", "takes 20 us, also while every node sends to a distant one;", "1 Gbit/s", "*", "bcast", "\nallgather, by the bytes of each rank\n"]:
            self.assertIn(part, text)
        self.assertIn("takes 20 us, 3 times as long while every node ", run(*described, "--crossing", "3").stdout)

    def test_prices_are_shown_with_what_is_odd(self):
        result = run("--explain", "--json", "-n", "4", HEDDLE_ALGORITHM="rind", HEDDLE_SPIN="x", HEDDLE_COMPRESS="fp17")
        self.assertEqual({size["by"] for size in json.loads(result.stdout)["sizes"]}, {"price"})
        for part in ['HEDDLE_ALGORITHM="rind" is not an algorithm', 'HEDDLE_SPIN="x"', 'HEDDLE_COMPRESS="fp17" is not']:
            self.assertEqual(result.stderr.count("heddle-info: " + part), 1, result.stderr)

    def test_prices_of_no_job_and_of_too_large_a_one(self):
        for arguments, part in [(["-n", "1"], "one rank alone has nothing to choose"), (["-n", "256", "--nodes", "65536"], "131072 ranks at most")]:
            result = run("--explain", *arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(part, result.stderr)

    def test_a_described_machine_needs_explain(self):
        for option, value in [("--nodes", "4"), ("--latency", "20"), ("--gbit", "1"), ("--crossing", "2")]:
            result = run(option, value)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertRegex(result.stderr, f"^heddle-info: {option} requires --explain; see --help\n")

    def test_odd_environment_is_explained(self):
        found = info(HEDDLE_TIMEOUT="abc", HEDDLE_SPINS="3", HEDDLE_ALGORITHM="allreduce:no_such", HEDDLE_COMPRESS="fp17")
        self.assertIn("HEDDLE_TIMEOUT=abc", found["environment"])
        text = "\n".join(found["complaints"])
        for part in ['HEDDLE_TIMEOUT="abc" is not a number of seconds', "HEDDLE_SPIN", "no_such", "fp17"]:
            self.assertIn(part, text)

    def test_networks_are_transports(self):
        found = info()
        names = [t["name"] for t in found["transports"]]
        self.assertTrue({"mpi", "tcp", "ucx", "verbs"} <= set(names), names)
        self.assertEqual([d["name"] for d in found["devices"]][0], "cuda")

    def test_gpus_of_a_double_of_the_driver(self):
        if not FAKE_CUDA:
            self.skipTest("this build has no CUDA")
        folder = {"LD_LIBRARY_PATH": os.path.dirname(FAKE_CUDA)}
        cuda, first, second = info(**folder)["devices"]
        self.assertTrue(cuda["usable"] and first["usable"])
        self.assertIn("2 GPUs", cuda["detail"])
        self.assertRegex(cuda["detail"], "; (kernels for sm_[0-9]+|no kernels: built without nvcc)")
        for part in ["double of a GPU, number 1", "1 GiB", "sm_90", "0000:01:00.0", "256 MiB at most"]:
            self.assertIn(part, second["detail"])
        off = info(HEDDLE_CUDA="0", **folder)["devices"]
        self.assertFalse(any(device["usable"] for device in off))
        self.assertIn("HEDDLE_CUDA=0", off[0]["detail"])
        self.assertIn("0 GPUs", info(FAKE_CUDA_DEVICES="0", **folder)["devices"][0]["detail"])
        for odd, said in [({"FAKE_CUDA_FAIL": "cuInit:100:1"}, "CUDA_ERROR_NO_DEVICE (100"),
                          ({"FAKE_CUDA_LACKS": "cuMemHostRegister"}, "has no function cuMemHostRegister; heddle needs")]:
            devices = info(**odd, **folder)["devices"]
            self.assertEqual(len(devices), 1)
            self.assertFalse(devices[0]["usable"])
            self.assertIn(said, devices[0]["detail"])

    def test_gpus_and_gpus(self):
        if not FAKE_CUDA:
            self.skipTest("this build has no CUDA")
        with tempfile.TemporaryDirectory() as sysfs:
            made_up_machine(sysfs)
            folder = {"LD_LIBRARY_PATH": os.path.dirname(FAKE_CUDA)}

            def pairs(**variables):
                return info("--sysfs", sysfs, **folder, **variables)["gpu_pairs"]

            expected = {"first": "GPU 0", "second": "GPU 1", "distance": "unknown", "reach": "yes", "atomics": "no", "rank": 1,
                        "path": "directly, once tried"}
            self.assertEqual(pairs(), [expected])
            root = f"{sysfs}/devices/pci0000:00"
            os.makedirs(f"{root}/0000:00:01.0/0000:01:00.0")
            os.symlink(f"{root}/0000:00:01.0/0000:01:00.0", f"{sysfs}/bus/pci/devices/0000:01:00.0")
            self.assertEqual(pairs(FAKE_CUDA_NVLINK="1"), [expected | {"distance": "same PCIe switch", "atomics": "yes"}])
            alone = pairs(FAKE_CUDA_NO_PEERS="1")[0]
            self.assertEqual((alone["reach"], alone["path"]), ("no", "by way of host memory"))
            self.assertEqual(pairs(FAKE_CUDA_DEVICES="1"), [])
            self.assertRegex(run("--sysfs", sysfs, **folder).stdout, r"GPU 0 +GPU 1 +same PCIe switch +yes +no +1 +directly, once tried")

    def test_gpus_and_networks(self):
        if not FAKE_CUDA:
            self.skipTest("this build has no CUDA")
        with tempfile.TemporaryDirectory() as sysfs:
            made_up_machine(sysfs)
            folder = {"LD_LIBRARY_PATH": os.path.dirname(FAKE_CUDA)}

            def matrix(**variables):
                return {(p["gpu"], p["network"]): p for p in info("--sysfs", sysfs, **folder, **variables)["gpu_networks"]}

            pairs = matrix(FAKE_CUDA_DMABUF="1")
            # eth1 is the same device as mlx5_0, and lo is none.
            networks = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "eth0"]
            self.assertEqual(list(pairs), [(gpu, one) for gpu in ["GPU 0", "GPU 1"] for one in networks])
            expected = {"mlx5_0": ("same PCIe switch", "possible", "possible"), "mlx5_1": ("same root complex", "unsure", "possible"),
                        "mlx5_2": ("same NUMA node", "unsure", "possible"), "mlx5_3": ("other NUMA node", "unsure", "possible"),
                        "eth0": ("other NUMA node", "no", "no")}
            for network, (distance, read, write) in expected.items():
                pair = pairs["GPU 0", network]
                self.assertEqual((pair["distance"], pair["gdr_read"], pair["gdr_write"]), (distance, read, write), network)
                self.assertIn("staged", pair["path"])
                self.assertIn("could not be tried: " if read != "no" else "no RDMA device", pair["why"])
            # There is nothing about this one.
            self.assertEqual({pairs["GPU 1", one]["distance"] for one in networks}, {"unknown"})
            for variables in [{}, {"FAKE_CUDA_GPU_DIRECT": "1"}]:
                pair = matrix(**variables)["GPU 0", "mlx5_0"]
                self.assertEqual((pair["gdr_read"], pair["gdr_write"]), ("no", "no"))
                self.assertIn("neither dmabuf nor nvidia_peermem", pair["why"])
            os.makedirs(f"{sysfs}/module/nvidia_peermem")
            self.assertEqual(matrix(FAKE_CUDA_GPU_DIRECT="1")["GPU 0", "mlx5_0"]["gdr_read"], "possible")
            text = run("--sysfs", sysfs, **folder).stdout
            self.assertRegex(text, r"GPU 0 +mlx5_1 +same root complex +no +no +staged in pinned host memory: neither")
        self.assertEqual(info("--sysfs", "/nowhere", **folder)["gpu_networks"], [])

    def test_gpudirect_is_tried(self):
        if not NETWORK_DOUBLE:
            self.skipTest("this build has no double of a network")
        with tempfile.TemporaryDirectory() as sysfs:
            made_up_machine(sysfs)
            environment = {"LD_LIBRARY_PATH": os.path.dirname(FAKE_CUDA), "HEDDLE_MODULES": NETWORK_DOUBLE, "FAKE_CUDA_DMABUF": "1"}

            def first(**variables):
                pair = info("--sysfs", sysfs, **environment, **variables)["gpu_networks"][0]
                return pair["gdr_read"], pair["gdr_write"], pair["path"], pair["why"]

            self.assertEqual(first(), ("1.0 GB/s", "1.0 GB/s", "GPUDirect RDMA for large calls", "1.0 GB/s within the host's memory"))
            staged = "staged in pinned host memory"
            self.assertEqual(first(NETWORK_DOUBLE="slow"),
                             ("0.2 GB/s", "1.0 GB/s", staged, "1.0 GB/s within the host's memory, which is faster"))
            self.assertEqual(first(NETWORK_DOUBLE="refuses"), ("no", "no", staged, "the double takes no memory"))
            self.assertIn("HEDDLE_GPUDIRECT", first(HEDDLE_GPUDIRECT="0")[3])

    def test_tcp_is_not_usable_with_what_the_kernel_does_not_have(self):
        for name, usable, said in (("reno", True, ""), ("nosuch", False, "; HEDDLE_TCP_CONGESTION='nosuch': the kernel has none of that name")):
            tcp, = (t for t in info(HEDDLE_TCP_CONGESTION=name)["transports"] if t["name"] == "tcp")
            self.assertEqual(tcp["usable"], usable, tcp)
            self.assertIn(said, tcp["detail"])

    def test_lines_end_outside_of_brackets(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a-file-with-a-name-so-long-that-the-line-would-end-just-here.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"version": 1, "rules": [{"collective": "allreduce", "bytes": 3, "algorithm": "ring"}]}, file)
            self.assertIn("must be [least, most]", run(HEDDLE_TUNING_FILE=path).stdout)

    def test_transport_left_out_is_not_usable(self):
        found = info(HEDDLE_TRANSPORTS="mpi")
        shm = [t for t in found["transports"] if t["name"].startswith("shm")]
        self.assertTrue(shm and not any(t["usable"] for t in shm))

    def test_environment_table_is_the_documents(self):
        table = run("--environment-table").stdout
        with open(ENVIRONMENT_MD, encoding="utf-8") as document:
            self.assertIn(table, document.read())

    def test_wrong_options_are_refused(self):
        self.assertEqual(run("-W", "4").stderr, "heddle-info: not expected: -W 4; see --help\n")
        self.assertEqual(len({run(option).stdout for option in ("-v", "--version")}), 1)
        self.assertEqual(info("-n", "2", "-n", "3")["algorithms"]["ranks"], 3)
        for arguments in [["-n", "0"], ["-n", "many"], ["--no-such"]]:
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertTrue(result.stderr.startswith("heddle-info: "), result.stderr)

    def test_what_no_machine_has_is_refused(self):
        for option in "--latency", "--gbit", "--crossing":
            for value in "0", "-1", "1e300", "inf", "nan":
                result = run("--explain", option, value)
                self.assertNotEqual(result.returncode, 0, f"{option} {value}")
                message = result.stderr.splitlines()[0]
                self.assertRegex(message, f"^heddle-info: {option}: .*{value}")
                self.assertIn("1000000", message)
                self.assertLess(len(message), 110)

    def test_full_output_is_reported(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([PROGRAM, "--environment-table"], stdout=full, stderr=subprocess.PIPE,
                                    encoding="utf-8", check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("standard output", result.stderr)


if __name__ == "__main__":
    unittest.main()
