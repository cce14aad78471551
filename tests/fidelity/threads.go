package main

import (
	"fmt"
	"os"
	"sync"
)

func main() {
	var group sync.WaitGroup
	for worker := 0; worker < 32; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for n := 0; n < 200; n++ {
				name := fmt.Sprintf("f%d.%d", worker, n)
				if err := os.WriteFile(name+".tmp", []byte(name), 0o644); err != nil {
					panic(err)
				}
				if err := os.Rename(name+".tmp", name); err != nil {
					panic(err)
				}
			}
		}(worker)
	}
	group.Wait()
}
