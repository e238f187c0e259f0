package workload

// linkBenchOutDegree is the number of links that leave a vertex, as points
// (links, share of vertices with at most so many): mean 4.1, 45 % of the
// vertices have none. Thinned from the 19,951 points of config/Distribution.dat
// of LinkBench (github.com/facebookarchive/linkbench, commit ac67d54,
// Apache-2.0); Armstrong et al., SIGMOD 2013.
func linkBenchOutDegree() []Point {
	return []Point{
		{0, 0.4533160573}, {1, 0.7746259112}, {2, 0.8695805953}, {3, 0.9199305428},
		{4, 0.944507991}, {5, 0.9582807169}, {6, 0.9672252805}, {7, 0.9732008855},
		{8, 0.9776142319}, {9, 0.9807767693}, {10, 0.9832803368}, {12, 0.9870025671},
		{15, 0.9902687903}, {20, 0.993269556}, {25, 0.9947017018}, {30, 0.9955693901},
		{40, 0.996614138}, {50, 0.9972156049}, {64, 0.9977143704}, {80, 0.9980517989},
		{100, 0.9983136115}, {128, 0.9985391982}, {160, 0.9987081709}, {200, 0.9988513523},
		{256, 0.9989846391}, {300, 0.9990606634}, {400, 0.9991872365}, {512, 0.9992835435},
		{700, 0.9993935809}, {1000, 0.9995065916}, {1024, 0.9995138914}, {1500, 0.9996208469},
		{2000, 0.9996937201}, {3000, 0.9997854898}, {4096, 0.9998430554}, {5000, 0.9998745332},
		{7000, 0.9999171369}, {10000, 0.9999504521}, {15000, 0.9999749791}, {20000, 0.9999853795},
		{30000, 0.9999938394}, {50000, 0.9999981414}, {70000, 0.9999991501}, {100000, 0.9999996292},
		{150000, 0.9999998221}, {200000, 0.9999999063}, {300000, 0.9999999742}, {500000, 0.9999999935},
		{700000, 0.9999999951}, {961963, 1.0},
	}
}

// feedBatch is the number of items one read asks for: the size of a read
// transaction of TAOBench (github.com/audreyccheng/taobench, commit a122cfd;
// Cheng et al., VLDB 2022), known by its percentiles.
func feedBatch() []Point {
	return []Point{{1, 0}, {4, 0.5}, {49, 0.9}, {98, 0.95}, {241, 0.99}, {451, 0.999}, {500, 1}}
}

// Shares of the operations, in percent.
//
// linkBenchShares: config/FBWorkload.properties of LinkBench, its node
// operations removed and the rest brought to 100.
func linkBenchShares() []share {
	return []share{
		{Add, 11.809}, {Delete, 3.929}, {Update, 10.526}, {Count, 6.420}, {Has, 0.691}, {ListNewest, 66.624},
	}
}

// feedShares is a proposal for a service of likes, built from LinkBench, TAO
// (Bronson et al., USENIX ATC 2013) and TAOBench. It was measured nowhere.
func feedShares() []share {
	return []share{
		{Has, 45}, {Count, 35}, {ListNewest, 17}, {Add, 2.4}, {Delete, 0.4}, {ListOlder, 0.2},
	}
}

// Further facts of LinkBench (same source) and of the proposed likes profile.
const (
	linkReadShape   = 0.8   // Zipf shape of the vertex a read goes to
	linkWriteShape  = 0.741 // … and of the one a write goes to; both uncorrelated with its degree
	linkPageLimit   = 10000 // entries of one getlinklist
	linkTailShare   = 0.003 // listings that continue into older entries
	multigetP       = 0.382 // geometric size of a multiget
	multigetMax     = 128
	getExists       = 0.5 // shares of operations that meet an edge that exists
	updateExists    = 0.9
	deleteExists    = 0.9
	addExists       = 0.05
	notePopularity  = 0.99 // Zipf shape of the notes of a feed
	storePopularity = 0.9  // … and of the notes of a stored graph
)
